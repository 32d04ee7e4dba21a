"""Who says which of two answers is better, a file each."""
