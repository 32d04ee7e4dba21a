"""Where everything came from and what depends on it: one graph of artifacts and stage runs."""
