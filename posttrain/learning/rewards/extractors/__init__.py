"""Extractors, one file each: parts that say which piece of a text is its answer."""
