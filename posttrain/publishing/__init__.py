"""Releases, and the proof that they can be made again."""
