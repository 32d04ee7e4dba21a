"""Filters of tables of problems and solutions: each keeps a row or says why not."""
