"""Recipes that run by the clock: what is due, what is decided, and what became of it."""
