"""Sources of problems: each reads or makes problems, and the solutions that it has."""
