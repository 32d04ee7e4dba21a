"""Inference strategies: how several samples of a problem become one answer."""
