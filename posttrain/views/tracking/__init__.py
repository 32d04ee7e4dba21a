"""Metrics go out of here: a memory tracker for tests, an MLflow view for people."""

import os
from pathlib import Path

from posttrain.views.tracking.base import CLOSE_SECONDS, Tracker

__all__ = ["CLOSE_SECONDS", "Tracker", "open_tracker"]


def open_tracker(state: Path) -> Tracker:
    """The tracker of a project whose state lies in `state`.

    MLflow, in an SQLite database there or wherever `MLFLOW_TRACKING_URI` says;
    `POSTTRAIN_TRACKING=off` turns it off.
    """
    if os.environ.get("POSTTRAIN_TRACKING") == "off":
        from posttrain.views.tracking.base import MemoryTracker

        return MemoryTracker()
    from posttrain.views.tracking.mlflow import MlflowTracker

    return MlflowTracker(state)
