"""What a person asks of a run first: when, how long, where, at what cost, which model and way."""

import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from posttrain.provenance.ledger.records import Run, StageRun
from posttrain.stage.formatting import bytesize, counted, duration, number
from posttrain.stage.spec import ArtifactKind
from posttrain.views.report.facts import StageFacts, found

_PARTS = {
    "algorithm.advantage.kind": "advantage {}",
    "algorithm.advantage.baseline": "baseline {}",
    "algorithm.advantage.scale": "scaled by {}",
    "algorithm.surrogate.kind": "surrogate {}",
    "algorithm.aggregation.kind": "aggregated by {}",
    "algorithm.loss.kind": "pair loss {}",
    "algorithm.beta": "beta {}",
    "loss.kind": "loss {}",
    "parameterization": "reward by {}",
}
"""Parameters that tell one algorithm from another, by how they are said."""
_NUMBERS = {
    "optimization.optimizer": "{}",
    "optimization.learning_rate": "learning rate {}",
    "steps": "{} steps",
    "epochs": "{} epochs",
    "problems_per_step": "{} problems a step",
    "group_size": "{} answers each",
    "batch_tokens": "{} tokens a batch",
    "batch_size": "{} pairs a batch",
    "learner.lora.rank": "LoRA of rank {}",
}
"""The numbers that are asked for first."""


def glance(
    run: Run | None,
    stages: Sequence[StageFacts],
    artifacts: Mapping[str, Path],
    *,
    method: str = "",
    cost: str = "",
) -> dict[str, str]:
    """Say what a run was, label by label.

    Args:
        run: As the ledger has it; None where it is not known.
        stages: Of the run.
        artifacts: `stage.output` -> where it lies.
        method: That the recipe names, if it names one.
        cost: What it took, in words; empty where nobody counted.

    Returns:
        Texts by label; what is not known is left out.

    """
    executed = [stage for stage in stages if stage.record.status == "succeeded"]
    said = {
        "run": _when(run),
        "duration": _lasted(run, stages, len(executed)),
        "machine": _machine([stage.record for stage in executed or stages]),
        "cost": cost,
        "model": "; ".join(_models(stages, artifacts)),
        "method": method,
    }
    learned = {f"{stage.name}": learned_by(stage.record) for stage in stages}
    return {name: text for name, text in (said | learned).items() if text}


def _when(run: Run | None) -> str:
    if run is None:
        return ""
    return time.strftime("%d %B %Y, %H:%M UTC", time.gmtime(run.started)).lstrip("0")


def _lasted(run: Run | None, stages: Sequence[StageFacts], executed: int) -> str:
    """From start to end, and what the work behind all stages took, whenever that was."""
    work = f"{duration(sum(stage.seconds for stage in stages))} of work in all stages"
    if run is None or run.ended is None:
        return work
    ran = f"{executed} of {counted(len(stages), 'stage')} ran"
    return f"{duration(run.ended - run.started)}, {ran}; {work}"


def _machine(records: Sequence[StageRun]) -> str:
    """Where the stages ran: host, processor, GPU."""
    places = {
        (each.host, each.circumstances.get("processor", ""), each.circumstances.get("gpu", ""))
        for each in records
        if each.host
    }
    return "; ".join(
        f"{host}: {', '.join(filter(None, (processor, gpu or 'no GPU')))}"
        for host, processor, gpu in sorted(places)
    )


def _models(stages: Sequence[StageFacts], artifacts: Mapping[str, Path]) -> Iterator[str]:
    """Each size of model that there is among the checkpoints, by the last that has it."""
    sizes: dict[str, str] = {}
    for item in found(stages, artifacts, ArtifactKind.CHECKPOINT):
        if text := model_size(item.path):
            sizes[text] = item.name
    for text, name in sizes.items():
        yield f"{name}: {text}"


def model_size(checkpoint: Path) -> str:
    """Read architecture and number of parameters off a checkpoint's files.

    Args:
        checkpoint: A folder in Hugging Face's format.

    Returns:
        Such as `llama, 115,072 parameters (460.3 kB)`; empty where there are no weights.

    """
    count = size = 0
    for file in sorted(checkpoint.glob("*.safetensors")):
        with file.open("rb") as stream:
            header = json.loads(stream.read(int.from_bytes(stream.read(8), "little")))
        shapes = [each["shape"] for name, each in header.items() if name != "__metadata__"]
        count += sum(map(math.prod, shapes))
        size += file.stat().st_size
    if not count:
        return ""
    config = checkpoint / "config.json"
    kind = (
        json.loads(config.read_text(encoding="utf-8")).get("model_type") if config.exists() else ""
    )
    return ", ".join(filter(None, (kind, f"{counted(count, 'parameter')} ({bytesize(size)})")))


def learned_by(record: StageRun) -> str:
    """Say by which algorithm a stage learns, with its main numbers.

    Args:
        record: The stage's.

    Returns:
        A line; empty for a stage that has no optimizer.

    """
    params = {name: json.loads(text) for name, text in record.components.get("params", {}).items()}
    if "optimization.learning_rate" not in params:
        return ""
    told = [
        words.format(number(value) if isinstance(value, int | float) else value)
        for name, words in (_PARTS | _NUMBERS).items()
        if (value := params.get(name)) is not None and value != "none"
    ]
    return ", ".join(told)
