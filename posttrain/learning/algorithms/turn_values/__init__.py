"""How the values of turns are learned from stored episodes, one part a file."""
