"""Verifiers, one file each: parts that say how good an answer to a problem is, and why."""
