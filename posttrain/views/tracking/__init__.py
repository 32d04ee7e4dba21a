"""Metrics go out of here: a memory tracker for tests, MLflow's view for people, and mirrors."""

import os
from pathlib import Path

from posttrain.stage.errors import UserError, nearest
from posttrain.views.tracking.base import CLOSE_SECONDS, MemoryTracker, Tracker

__all__ = ["CLOSE_SECONDS", "Tracker", "open_tracker"]

_CHOICE = "POSTTRAIN_TRACKING"
_NAMES = ("mlflow", "tensorboard", "wandb")


def open_tracker(state: Path) -> Tracker:
    """The tracker of a project whose state lies in `state`, as the environment chooses it.

    `POSTTRAIN_TRACKING` names trackers with commas between them; `mlflow` is the default, and `off`
    is none at all. MLflow writes to an SQLite database of the project or wherever
    `MLFLOW_TRACKING_URI` says. Lineage events are sent where `OPENLINEAGE_URL` is set.

    Raises:
        UserError: There is no tracker of such a name.

    """
    chosen = os.environ.get(_CHOICE) or "mlflow"
    if chosen == "off":
        return MemoryTracker()
    names = [each.strip() for each in chosen.split(",")]
    for name in names:
        if name not in _NAMES:
            hint = nearest(name, _NAMES) or f"; there are {', '.join(_NAMES)}"
            raise UserError(f"{_CHOICE} is '{chosen}', and there is no tracker '{name}'{hint}")
    # MLflow comes first: the ledger keeps its ids.
    trackers = [_open(name, state) for name in _NAMES if name in names]
    from posttrain.views.tracking.beside import (
        OpenLineageTracker,
        SeveralTrackers,
        lineage_is_wanted,
    )

    if lineage_is_wanted():
        trackers.append(OpenLineageTracker(state))
    return trackers[0] if len(trackers) == 1 else SeveralTrackers(*trackers)


def _open(name: str, state: Path) -> Tracker:
    if name == "mlflow":
        from posttrain.views.tracking.mlflow import MlflowTracker

        return MlflowTracker(state)
    from posttrain.views.tracking.beside import TensorboardTracker, WandbTracker

    return TensorboardTracker(state) if name == "tensorboard" else WandbTracker(state)
