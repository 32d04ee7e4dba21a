"""Builders of preference pairs: each says which samples of a problem stand against each other."""
