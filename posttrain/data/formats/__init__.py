"""Formats of other people's rows: each says which rows are its own, and what they mean."""
