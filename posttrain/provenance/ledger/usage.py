"""What executing a stage took of a machine: a note beside its record, and their sums."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from posttrain.provenance.ledger.annotations import Annotations

_NOTE = "usage"


@dataclass(frozen=True)
class Usage:
    """Resources of one execution, or of several together.

    What was not measured is None: of a stage that was killed nobody knows its processor time, and
    few machines tell their energy.
    """

    seconds: float = 0.0
    """By the clock, from when the stage had its devices."""
    cpu_seconds: float | None = 0.0
    """Of processor cores, of its process and those that it started and waited for."""
    gpu_seconds: float = 0.0
    """Devices that it held, times the seconds."""
    joules: float | None = None
    """By the counters of the processor's packages and of the GPUs."""

    def __add__(self, other: "Usage") -> "Usage":
        """Sum what is known; a part that is not known adds nothing."""
        return Usage(
            self.seconds + other.seconds,
            _sum(self.cpu_seconds, other.cpu_seconds),
            self.gpu_seconds + other.gpu_seconds,
            _sum(self.joules, other.joules),
        )


def _sum(one: float | None, other: float | None) -> float | None:
    known = [each for each in (one, other) if each is not None]
    return sum(known) if known else None


def note_usage(annotations: Annotations, stage_run: str, usage: Usage) -> None:
    """Note what an execution took.

    Args:
        annotations: Of the ledger.
        stage_run: Id of its record.
        usage: What it took.

    """
    annotations.note(_NOTE, {stage_run: json.dumps(asdict(usage), sort_keys=True)})


def usage_by_stage_run(annotations: Annotations) -> dict[str, Usage]:
    """Read what executions took, by id of the stage run; those before it was counted are absent."""
    return {name: Usage(**json.loads(text)) for name, text in annotations.noted(_NOTE).items()}


def total_usage(usages: Iterable[Usage]) -> Usage:
    """Sum usages; of none at all, nothing was taken."""
    whole = Usage()
    for each in usages:
        whole += each
    return whole
