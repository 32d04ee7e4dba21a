"""Programs that nobody has read, run where they can reach and leave nothing."""
