"""Rollouts of earlier steps that a step learns from again."""
