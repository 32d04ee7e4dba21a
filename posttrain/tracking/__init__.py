"""Metrics go out of here: a memory tracker for tests, an MLflow view for people."""
