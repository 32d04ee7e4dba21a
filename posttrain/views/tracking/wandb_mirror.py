"""Curves as runs of Weights & Biases: a run for each stage, in a group for each run of a recipe."""

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


class WandbMirror(CurveMirror):
    """Writes one run; W&B takes the step only upwards, so that no point is doubled."""

    def __init__(self, folder: Path, stage: MirroredStage) -> None:
        import wandb

        self._run: Any = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or stage.recipe,
            id=f"{stage.run}-{stage.stage}",
            name=stage.stage,
            group=stage.run,
            job_type=stage.stage,
            config={**stage.params, **stage.tags},
            dir=os.environ.get("WANDB_DIR") or str(folder),
            resume="allow",
            reinit="create_new",
            # What this process uses, prints and runs is not the stage's.
            settings=wandb.Settings(
                silent=True, console="off", disable_git=True, disable_code=True,
                x_disable_stats=True,
            ),
        )  # fmt: skip

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """See `CurveMirror`."""
        self._run.log(dict(values), step=step)

    def flush(self) -> None:
        """See `CurveMirror`; W&B's own process writes what it was told."""

    def close(self, status: Status, metrics: Mapping[str, float]) -> None:
        """See `CurveMirror`; the last figures are the summary."""
        self._run.summary.update({**metrics, "status": status})
        self._run.finish(exit_code=0 if status == "succeeded" else 1)


def prepare(*, alone: bool) -> None:
    """Import wandb; see `prepare_mirror`."""
    prepare_mirror("wandb", "wandb", alone=alone)


def open_wandb(
    state: Path, uri: str | None, external: dict[str, str], *, owner: str
) -> MirrorWriter:
    """Write to where wandb's own environment says.

    Args:
        state: State directory of the project, in which wandb keeps its files.
        uri: Nothing: wandb's environment names the server.
        external: Nothing: the ledger keeps MLflow's ids.
        owner: Of the runs; W&B knows who is logged in.

    """
    state.mkdir(parents=True, exist_ok=True)
    return MirrorWriter(state / "mirrors" / "wandb", lambda stage: WandbMirror(state, stage))
