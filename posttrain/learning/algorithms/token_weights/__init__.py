"""Factors on the loss of each token, one part a file."""
