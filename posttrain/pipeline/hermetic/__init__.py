"""A stage's process gives up what its key does not know: files, connections, variables."""
