"""Curves as TensorBoard's event files, a folder for each stage of a run."""

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from posttrain.views.tracking.base import Status
from posttrain.views.tracking.mirrors import (
    CurveMirror,
    MirroredStage,
    MirrorWriter,
    prepare_mirror,
)


class TensorboardMirror(CurveMirror):
    """Writes the event file of one stage."""

    def __init__(self, folder: Path, stage: MirroredStage) -> None:
        from tensorboardX import SummaryWriter

        # TensorBoard drops from the files before this one what they have from there on.
        purged = stage.told + 1 if stage.told else None
        self._writer: Any = SummaryWriter(
            str(folder / stage.recipe / stage.run / stage.stage), purge_step=purged
        )
        rows = [f"| {name} | {value} |" for name, value in stage.params.items()]
        self._writer.add_text("parameters", "\n".join(["| name | value |", "|---|---|", *rows]))

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """See `CurveMirror`."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def flush(self) -> None:
        """See `CurveMirror`."""
        self._writer.flush()

    def close(self, status: Status, metrics: Mapping[str, float]) -> None:
        """See `CurveMirror`; the last figures are one point each, apart from the curves."""
        for name, value in metrics.items():
            if math.isfinite(value):
                self._writer.add_scalar(f"final/{name}", value, 0)
        self._writer.add_text("status", status)
        self._writer.close()


def prepare(*, alone: bool) -> None:
    """Import the writer; see `prepare_mirror`."""
    prepare_mirror("tensorboardX", "tensorboard", alone=alone)


def open_tensorboard(
    state: Path, uri: str | None, external: dict[str, str], *, owner: str
) -> MirrorWriter:
    """Write below a folder.

    Args:
        state: State directory of the project.
        uri: A folder, in place of the environment's.
        external: Nothing: there is no server.
        owner: Of the runs; event files do not say it.

    """
    folder = Path(uri or os.environ.get("POSTTRAIN_TENSORBOARD") or state / "tensorboard")
    notes = state / "mirrors" / "tensorboard"
    return MirrorWriter(notes, lambda stage: TensorboardMirror(folder, stage))
