"""What a stage may know of the run that it is part of."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from posttrain.stage.resources import RayResources

TRACKED_RUN = "mlflow_run_id"
"""File in a stage's scratch: the tracker's own id of the run that its metrics go to."""


def _ignore(_event: Mapping[str, object]) -> None:
    """Drop an event: nobody is watching."""


@dataclass(frozen=True)
class StageContext:
    """Seed, resources and channels of one stage run.

    `scratch` survives a kill, is private to this exact stage key, and is removed once the
    stage's outputs are published: the place for resumable checkpoints. With more than one of
    `processes`, this is one of them, in a process group that is open already. With `ray`, rollouts
    and work on tables go to that cluster.
    """

    seed: int
    threads: int
    device: str
    scratch: Path
    emit: Callable[[Mapping[str, object]], None] = _ignore
    processes: int = 1
    ray: RayResources | None = None

    @classmethod
    def quiet(cls, scratch: Path, *, seed: int = 0) -> Self:
        """Make a context for tests and notebooks: one thread, CPU, no tracker.

        Args:
            scratch: Folder for checkpoints and drafts; made where it is missing.
            seed: Of everything random in the stage.

        Returns:
            A context that runs on this machine's CPU and reports to nothing.

        """
        scratch.mkdir(parents=True, exist_ok=True)
        return cls(seed=seed, threads=1, device="cpu", scratch=scratch)

    def progress(self, done: int, total: int, unit: str = "step") -> None:
        """Report that `done` of `total` units are finished.

        Args:
            done: Units finished so far.
            total: Units of the whole stage.
            unit: What is counted, as a noun in the singular.

        """
        self.emit({"kind": "progress", "done": done, "total": total, "unit": unit})

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Send metrics of one step to the tracker; they are never read back.

        Args:
            step: Steps made, counted from 1.
            metrics: Value by name, such as ``sft/loss``.

        """
        self.emit({"kind": "metrics", "step": step, "metrics": dict(metrics)})

    def note(self, line: str) -> None:
        """Write one line for the person who reads the stage's log."""
        self.emit({"kind": "note", "line": line})
