"""Hints: how much of a reference solution is given before the policy goes on, one law a file."""
