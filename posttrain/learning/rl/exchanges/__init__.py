"""Exchanges: what several policies that are trained together give each other, one way a file."""
