"""Branches: where episodes of a group begin inside another one, one way a file."""
