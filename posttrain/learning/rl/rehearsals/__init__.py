"""Second losses of RL, on rows of a table: what is rehearsed while the policy learns."""
