"""Work on a Ray cluster: where it is done and by how many decides nothing about the result."""
