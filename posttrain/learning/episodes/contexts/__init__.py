"""What becomes of a context that fills: context managers, one file each."""
