"""The trackers that ship: MLflow, mirrors of the curves, lineage events; and several as one."""

import os
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

from posttrain.views.tracking.base import CLOSE_SECONDS, Finished, Started, Tracker
from posttrain.views.tracking.queued import QueuedTracker

_ADDRESS, _CONFIG, _DISABLED = "OPENLINEAGE_URL", "OPENLINEAGE_CONFIG", "OPENLINEAGE_DISABLED"
REMEDY = "the run goes on without it; `posttrain mlflow rebuild` restores it from the ledger"
"""What becomes of MLflow's view where it cannot be written."""
_REMEDY = "the run goes on without it; MLflow and the artifacts have all curves"


class MlflowTracker(QueuedTracker):
    """Writes to `uri`, by default the SQLite database `mlflow.db` in the state directory.

    `posttrain mlflow rebuild` makes that view again from the ledger.
    """

    title = "MLflow"
    writer = "posttrain.views.tracking.mlflow_writer:open_mlflow"
    remedy = REMEDY


class TensorboardTracker(QueuedTracker):
    """Event files in the state directory, or in the folder that `POSTTRAIN_TENSORBOARD` names."""

    title = "TensorBoard"
    writer = "posttrain.views.tracking.tensorboard_mirror:open_tensorboard"
    remedy = _REMEDY


class WandbTracker(QueuedTracker):
    """Runs of Weights & Biases, as its own environment says: `WANDB_MODE`, `WANDB_PROJECT` ..."""

    title = "W&B"
    writer = "posttrain.views.tracking.wandb_mirror:open_wandb"
    remedy = _REMEDY


def lineage_is_wanted() -> bool:
    """Whether the environment names somebody who listens, as OpenLineage's own client reads it."""
    disabled = os.environ.get(_DISABLED, "").strip().lower() == "true"
    return not disabled and any(os.environ.get(name) for name in (_ADDRESS, _CONFIG))


class OpenLineageTracker(QueuedTracker):
    """Sends START and COMPLETE, FAIL or ABORT of stages; figures by step are not lineage."""

    title = "OpenLineage"
    writer = "posttrain.views.tracking.openlineage_writer:open_openlineage"
    remedy = (
        "the run goes on without it; `posttrain lineage up NODE --format openlineage` gives the"
        " events of what succeeded"
    )

    def metrics(self, handle: str, step: int, values: Mapping[str, float]) -> None:
        """See `Tracker`; they stay here."""


class SeveralTrackers(Tracker):
    """Tells each the same. Ids of servers, and the runs to go on in, are those of the first."""

    def __init__(self, first: Tracker, *others: Tracker) -> None:
        self._trackers = (first, *others)
        self._handles: dict[str, list[str]] = {}

    def prepare(self) -> None:
        """See `Tracker`."""
        for tracker in self._trackers:
            tracker.prepare()

    def start(self, started: Started) -> str:
        """See `Tracker`."""
        handle = uuid.uuid4().hex
        parents = self._handles[started.parent] if started.parent is not None else ()
        self._handles[handle] = [
            tracker.start(replace(started, parent=parent))
            for tracker, parent in zip_longest(self._trackers, parents)
        ]
        return handle

    def metrics(self, handle: str, step: int, values: Mapping[str, float]) -> None:
        """See `Tracker`."""
        for tracker, own in self._each(handle):
            tracker.metrics(own, step, values)

    def finish(self, handle: str, finished: Finished) -> None:
        """See `Tracker`."""
        for tracker, own in self._each(handle):
            tracker.finish(own, finished)

    def attach(self, run: str, files: Sequence[Path]) -> None:
        """See `Tracker`."""
        for tracker in self._trackers:
            tracker.attach(run, files)

    def external_id(self, handle: str) -> str | None:
        """See `Tracker`."""
        return self._trackers[0].external_id(self._handles[handle][0])

    def when_closed(self, ended: Callable[[], None]) -> None:
        """See `Tracker`."""
        self._trackers[0].when_closed(ended)

    def close(self, *, seconds: float = CLOSE_SECONDS) -> str | None:
        """See `Tracker`; all of them together have so long."""
        end = time.monotonic() + seconds
        said = [
            tracker.close(seconds=max(0.0, end - time.monotonic())) for tracker in self._trackers
        ]
        return "; ".join(filter(None, said)) or None

    def _each(self, handle: str) -> list[tuple[Tracker, str]]:
        return [*zip(self._trackers, self._handles[handle], strict=True)]
