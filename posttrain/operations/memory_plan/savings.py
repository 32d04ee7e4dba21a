"""Settings that take less memory, tried one by one on the accounting itself."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from posttrain.learning.memory.asked import PROCESSES_PATH, StageQuestion
from posttrain.learning.memory.learner import CPU
from posttrain.learning.training.config import LoraConfig
from posttrain.stage.config import configs_in

_RANK = 16
_LEAST_ROWS = 16
_LEAST_SHARE = 0.2


@dataclass(frozen=True)
class Setting:
    """A path of the stage, how a recipe or `--set` writes the value there, and that value."""

    path: str
    written: str
    value: Any


@dataclass(frozen=True)
class Saving:
    """Settings that go together, and the bytes by which they lower the peak."""

    settings: tuple[Setting, ...]
    saves: int = 0

    def told(self, stage: str) -> str:
        """The settings under their stage."""
        return " with ".join(f"{stage}.{each.path}={each.written}" for each in self.settings)

    def put_in(self, asked: StageQuestion) -> StageQuestion | None:
        """The stage with them; None where it does not take them."""
        try:
            for each in self.settings:
                asked = asked.changed(each.path, each.value)
        except ValueError:
            return None
        return None if _is_refused(asked) else asked


Peak = Callable[[StageQuestion], int]


def best_savings(asked: StageQuestion, peak: Peak, *, gpus: int, most: int = 3) -> list[Saving]:
    """Find settings that help most: the best one, the best beside that, and so on.

    Args:
        asked: The stage as its recipe has it.
        peak: Bytes of a stage at its peak.
        gpus: Devices that there are.
        most: Savings to return.

    Returns:
        At most so many; each says what it saves where those before it are set.

    """
    chosen: list[Saving] = []
    while len(chosen) < most:
        before = peak(asked)
        then = [
            (replace(saving, saves=before - peak(changed)), changed)
            for saving in trials(asked, gpus)
            if (changed := saving.put_in(asked)) and not _overlap(saving, chosen)
        ]
        best, asked = max(then, key=lambda each: each[0].saves, default=(Saving(()), asked))
        if best.saves <= 0:
            break
        chosen.append(best)
    return chosen


def _overlap(saving: Saving, chosen: list[Saving]) -> bool:
    paths = {each.path for other in chosen for each in other.settings}
    return any(each.path in paths for each in saving.settings)


def all_at_once(asked: StageQuestion, savings: list[Saving]) -> StageQuestion:
    """The stage with several savings, which go together, at once."""
    for each in savings:
        asked = each.put_in(asked) or asked
    return asked


def trials(asked: StageQuestion, gpus: int) -> Iterator[Saving]:
    """Try settings that the stage's config has and does not use.

    Args:
        asked: The stage.
        gpus: Devices that there are.

    Yields:
        What may be put in; some of it the stage does not take.

    """
    for unused, setting in (*_FIXED, *_lower(asked)):
        if asked.has(setting.path) and asked.says(setting.path) == unused:
            yield Saving((*_NEEDED.get(setting.path, ()), setting))
    if asked.device != CPU and gpus > asked.processes and asked.has("learner"):
        yield Saving((Setting(PROCESSES_PATH, f"{gpus}", gpus),))


_FIXED: tuple[tuple[Any, Setting], ...] = (
    (
        None,
        Setting(
            "learner.lora",
            f"{{rank: {_RANK}}}",
            LoraConfig.parse({"rank": _RANK}, where="learner.lora"),
        ),
    ),
    (False, Setting("learner.activation_checkpointing", "true", True)),
    ("fp32", Setting("learner.precision", "bf16", "bf16")),
    ("fp32", Setting("learner.weights", "nf4", "nf4")),
    ("fp32", Setting("learner.weights", "bf16", "bf16")),
    ("merged", Setting("learner.lora.save", "adapter", "adapter")),
    (False, Setting("learner.offload", "true", True)),
    ("fp32", Setting("optimization.states", "8bit", "8bit")),
    (False, Setting("optimization.in_backward", "true", True)),
    (False, Setting("optimization.offload", "true", True)),
    (False, Setting("engine.sleep", "true", True)),
)
"""The value that uses none of it, and the setting that does."""

_NEEDED: Mapping[str, tuple[Setting, ...]] = {
    "optimization.in_backward": (Setting("optimization.max_grad_norm", "null", None),),
}
"""What a setting cannot be without, by its path."""


def _is_refused(asked: StageQuestion) -> bool:
    """Whether the plan refuses what the config takes, in so many processes."""
    return any(each.beyond_processes(asked.processes) for each in configs_in(asked.config))


def _lower(asked: StageQuestion) -> Iterator[tuple[Any, Setting]]:
    """Numbers that may be smaller: tokens and rows that go through a model at once."""
    for path, whole, least in (
        ("micro_batch_tokens", "batch_tokens", 1),
        ("updates.micro_batch_tokens", "updates.micro_batch_tokens", 1),
        ("batch_size", "batch_size", _LEAST_ROWS),
    ):
        if not asked.has(path):
            continue
        now = asked.says(path)
        smaller = (now or asked.says(whole)) // 4
        if smaller >= least:
            yield now, Setting(path, f"{smaller}", smaller)
    share = "engine.gpu_memory_utilization"
    if asked.has(share) and asked.says(share) > _LEAST_SHARE:
        less = round(asked.says(share) / 2, 2)
        yield asked.says(share), Setting(share, f"{less}", less)
