"""Producers: from problems to groups of rewarded rollouts, one way a file."""
