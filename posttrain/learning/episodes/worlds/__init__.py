"""Environments that pose their own problems, one file each."""
