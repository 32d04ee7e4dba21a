"""Optimizers that a recipe may name: one file each, and a line in the registry."""
