"""Which problems are practiced on, and the state that decides it."""
