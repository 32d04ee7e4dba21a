"""How named scores become the number that is learnt from, one file each."""
