"""Metrics go out of here: a memory tracker for tests, an MLflow view for people."""

from posttrain.tracking.base import Finished, Started, Tracker

__all__ = ["Finished", "Started", "Tracker"]
