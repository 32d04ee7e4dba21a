"""How rewards become advantages, one part a file."""
