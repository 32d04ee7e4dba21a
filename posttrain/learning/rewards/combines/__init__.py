"""How named scores become the number that is learned from, one file each."""
