"""Instructors: which instruction stands before a problem, one way a file."""
