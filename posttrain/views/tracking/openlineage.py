"""Lineage events to a catalog while a run goes on, where the environment names one."""

import os
from collections.abc import Mapping

from posttrain.views.tracking.queued import QueuedTracker

_ADDRESS, _CONFIG, _DISABLED = "OPENLINEAGE_URL", "OPENLINEAGE_CONFIG", "OPENLINEAGE_DISABLED"


def is_wanted() -> bool:
    """Whether the environment names somebody who listens, as OpenLineage's own client reads it."""
    disabled = os.environ.get(_DISABLED, "").strip().lower() == "true"
    return not disabled and any(os.environ.get(name) for name in (_ADDRESS, _CONFIG))


class OpenLineageTracker(QueuedTracker):
    """Sends START and COMPLETE, FAIL or ABORT of stages; figures by step are not lineage."""

    title = "OpenLineage"
    writer = "posttrain.views.tracking.openlineage_writer"
    remedy = (
        "the run goes on without it; `posttrain lineage up NODE --format openlineage` gives the"
        " events of what succeeded"
    )

    def metrics(self, handle: str, step: int, values: Mapping[str, float]) -> None:
        """See `Tracker`; they stay here."""
