"""Losses on pairs that are parts of their own: one of them stands in place of a built-in form."""
