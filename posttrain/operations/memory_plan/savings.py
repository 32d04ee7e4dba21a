"""Settings that take less memory, tried one by one on the accounting itself."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from posttrain.learning.memory.asked import PROCESSES_PATH, StageQuestion
from posttrain.learning.memory.learner import CPU, LoraShape
from posttrain.stage.config import StageConfig

_RANK = 16
_LEAST_ROWS = 16
_LEAST_SHARE = 0.2


@dataclass(frozen=True)
class Saving:
    """A setting, as a recipe or `--set` writes it, and the bytes by which it lowers the peak."""

    path: str
    written: str
    value: Any
    saves: int

    def told(self, stage: str) -> str:
        """The setting under its stage."""
        return f"{stage}.{self.path}={self.written}"


Peak = Callable[[StageQuestion], int]


def best_savings(asked: StageQuestion, peak: Peak, *, gpus: int, most: int = 3) -> list[Saving]:
    """Try every setting that could help, and return those that help most.

    Args:
        asked: The stage as its recipe has it.
        peak: Bytes of a stage at its peak.
        gpus: Devices that there are.
        most: Settings to return.

    Returns:
        At most so many, those that save most first.

    """
    before = peak(asked)
    tried = [
        Saving(path, written, value, before - peak(asked.changed(path, value)))
        for path, written, value in _trials(asked, gpus)
    ]
    helpful = sorted((each for each in tried if each.saves > 0), key=lambda each: -each.saves)
    return helpful[:most]


def all_at_once(asked: StageQuestion, savings: list[Saving]) -> StageQuestion:
    """The stage with several settings at once."""
    for each in savings:
        asked = asked.changed(each.path, each.value)
    return asked


def _trials(asked: StageQuestion, gpus: int) -> Iterator[tuple[str, str, Any]]:
    """Path, spelling and value of every setting that the stage's config has and does not use."""
    for path, now, written, value in (*_FIXED, *_lower(asked)):
        known = _has(type(asked.config), path)
        if known and asked.says(path, now) == now:
            yield path, written, value
    if asked.device != CPU and gpus > asked.processes and _has(type(asked.config), "learner"):
        yield PROCESSES_PATH, f"{gpus}", gpus


_FIXED: tuple[tuple[str, Any, str, Any], ...] = (
    ("learner.lora", None, f"{{rank: {_RANK}}}", LoraShape(_RANK)),
    ("learner.activation_checkpointing", False, "true", True),
    ("learner.precision", "fp32", "bf16", "bf16"),
    ("learner.weights", "fp32", "bf16", "bf16"),
    ("optimization.states", "fp32", "8bit", "8bit"),
    ("optimization.in_backward", False, "true", True),
    ("optimization.offload", False, "true", True),
    ("engine.sleep", False, "true", True),
)
"""Path, the value that uses none of it, how the other one is written, and that."""


def _lower(asked: StageQuestion) -> Iterator[tuple[str, Any, str, Any]]:
    """Numbers that may be smaller: tokens and rows that go through a model at once."""
    for path, whole, least in (
        ("micro_batch_tokens", "batch_tokens", 1),
        ("updates.micro_batch_tokens", "updates.micro_batch_tokens", 1),
        ("batch_size", "batch_size", _LEAST_ROWS),
    ):
        now = asked.says(path, None)
        smaller = (now or asked.says(whole, None) or 0) // 4
        if smaller >= least:
            yield path, now, f"{smaller}", smaller
    share = asked.says("engine.gpu_memory_utilization", 0.0)
    if share > _LEAST_SHARE:
        less = round(share / 2, 2)
        yield "engine.gpu_memory_utilization", share, f"{less}", less


def _has(kind: type[StageConfig], path: str) -> bool:
    """Whether configs of a kind have a field at a dotted path."""
    name, _, rest = path.partition(".")
    given = kind.model_fields.get(name)
    if given is None or not rest:
        return given is not None
    inner = given.get_default(call_default_factory=True)
    return isinstance(inner, StageConfig) and _has(type(inner), rest)
