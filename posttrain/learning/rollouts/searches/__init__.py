"""Searches: how many answers to a problem come about where each looks at those before it."""
