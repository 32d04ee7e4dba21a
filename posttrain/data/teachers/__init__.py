"""Teachers: what writes worked solutions of problems, right or wrong."""
