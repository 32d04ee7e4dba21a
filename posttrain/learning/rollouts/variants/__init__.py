"""Variants of an evaluation: other ways to ask, and other ways to grade what was drawn."""
