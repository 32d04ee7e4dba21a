"""Metrics go out of here: a memory tracker for tests, MLflow's view for people, and mirrors."""

import os
import pkgutil
from collections.abc import Mapping
from pathlib import Path

from posttrain.stage.errors import UserError, nearest
from posttrain.views.tracking.base import CLOSE_SECONDS, MemoryTracker, Tracker

__all__ = ["CLOSE_SECONDS", "Tracker", "open_tracker"]

_CHOICE = "POSTTRAIN_TRACKING"
# MLflow comes first: the ledger keeps its ids.
_TRACKERS: Mapping[str, str] = {
    "mlflow": "posttrain.views.tracking.kinds:MlflowTracker",
    "tensorboard": "posttrain.views.tracking.kinds:TensorboardTracker",
    "wandb": "posttrain.views.tracking.kinds:WandbTracker",
}


def open_tracker(state: Path) -> Tracker:
    """The tracker of a project whose state lies in `state`, as the environment chooses it.

    `POSTTRAIN_TRACKING` names trackers with commas between them; `mlflow` is the default, and `off`
    is none at all. One of one's own is named by its place, `package.module:Class`, and is made of
    `state`. MLflow writes to an SQLite database of the project or wherever
    `MLFLOW_TRACKING_URI` says. Lineage events are sent where `OPENLINEAGE_URL` is set.

    Raises:
        UserError: There is no tracker of such a name, or none at such a place.

    """
    chosen = os.environ.get(_CHOICE) or "mlflow"
    if chosen == "off":
        return MemoryTracker()
    names = [each.strip() for each in chosen.split(",")]
    own = [name for name in dict.fromkeys(names) if name not in _TRACKERS]
    for name in own:
        if ":" not in name:
            hint = nearest(name, _TRACKERS) or f"; there are {', '.join(_TRACKERS)}"
            raise UserError(f"{_CHOICE} is '{chosen}', and there is no tracker '{name}'{hint}")
    places = [place for name, place in _TRACKERS.items() if name in names]
    trackers = [_open(place, state) for place in (*places, *own)]
    from posttrain.views.tracking.kinds import (
        OpenLineageTracker,
        SeveralTrackers,
        lineage_is_wanted,
    )

    if lineage_is_wanted():
        trackers.append(OpenLineageTracker(state))
    return trackers[0] if len(trackers) == 1 else SeveralTrackers(*trackers)


def _open(place: str, state: Path) -> Tracker:
    try:
        made: Tracker = pkgutil.resolve_name(place)(state)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(f"{_CHOICE}: there is no tracker at '{place}': {error}") from None
    return made
