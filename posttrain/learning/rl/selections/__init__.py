"""Selections: which rollouts of a group are learned from, one way a file."""
