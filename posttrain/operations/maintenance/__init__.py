"""Keep a project in order: what may go when the disk fills, and what is wrong with a machine."""
