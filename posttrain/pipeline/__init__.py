"""Declare, plan, run and record the stages of a recipe."""
