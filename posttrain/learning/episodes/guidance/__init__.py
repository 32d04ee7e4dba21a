"""Guidance: what is told before a second try at what failed, one way a file."""
