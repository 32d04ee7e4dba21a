"""Filters over tables of problems: each keeps a row or says why not, over whole columns at once."""
