"""Releases: what is released, the gates it passed, signed claims about every byte, and proof."""
