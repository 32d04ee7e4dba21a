"""What a model took to be made: machine, hours, energy, as the ledger noted them."""

from collections.abc import Sequence
from dataclasses import dataclass

from posttrain.provenance.ledger import Ledger, StageRun
from posttrain.provenance.ledger.usage import Usage, usage_by_stage_run

_HOUR, _KWH = 3600.0, 3.6e6
_UNKNOWN = "not counted"


@dataclass(frozen=True)
class StageTraining:
    """What the execution took that a stage's outputs are from."""

    stage: str
    hardware: str
    """Processor, and the GPU where it had one; empty where nobody noted it."""
    usage: Usage | None
    """None where nobody counted."""


def training_costs(ledger: Ledger, stages: Sequence[StageRun]) -> list[StageTraining]:
    """Look up what stages took when they were executed, whenever that was.

    Args:
        ledger: That recorded them.
        stages: What is told of; one that was reused stands for the execution before it.

    Returns:
        One for each.

    """
    usages = usage_by_stage_run(ledger.annotations)
    found = []
    for run in stages:
        maker = run if run.id in usages else ledger.history.executed(run.key) or run
        names = [maker.circumstances.get(each) for each in ("gpu", "processor")]
        hardware = ", ".join(each for each in names if each)
        found.append(StageTraining(run.stage, hardware, usages.get(maker.id)))
    return found


def cost_rows(costs: Sequence[StageTraining]) -> list[str]:
    """Write them as rows of a Markdown table: stage, hours of clock, CPU and GPU, and kWh."""
    return [f"| {each.stage} | {' | '.join(_figures(each.usage))} |" for each in costs]


def hardware_named(costs: Sequence[StageTraining]) -> list[str]:
    """Name the machines, each once."""
    return list(dict.fromkeys(each.hardware for each in costs if each.hardware))


def _figures(usage: Usage | None) -> tuple[str, ...]:
    if usage is None:
        return (_UNKNOWN,) * 4
    cpu = _UNKNOWN if usage.cpu_seconds is None else _hours(usage.cpu_seconds)
    energy = _UNKNOWN if usage.joules is None else f"{usage.joules / _KWH:.4f}"
    return _hours(usage.seconds), cpu, _hours(usage.gpu_seconds), energy


def _hours(seconds: float) -> str:
    return f"{seconds / _HOUR:.4f}"
