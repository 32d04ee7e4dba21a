"""What a model or a table is from, by the stage runs behind it: models, data, methods, hours."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from posttrain.methods.find import find_method, has_method
from posttrain.provenance.key import nested
from posttrain.provenance.ledger import Ledger, StageRun
from posttrain.provenance.ledger.usage import Usage, usage_by_stage_run
from posttrain.stage.spec import ArtifactKind

# Ports by which weights go from one stage into the next; a judge or a reference has others.
_WEIGHTS = ("policy", "policies")
_IMPORT, _MERGE = "import_model", "merge"
_TRAINERS = ("pretrain", "sft", "preference", "rl", "coevolve", "denoise", "teach", "subnetwork")
_HOUR, _KWH = 3600.0, 3.6e6
_UNKNOWN = "not counted"
_ARXIV = re.compile(r"\b\d{4}\.\d{4,5}\b")


@dataclass(frozen=True)
class HubData:
    """A data set of the hub that a stage read."""

    name: str
    revision: str
    subset: str | None
    split: str
    heldout: bool
    """True where all of it was held out of training."""


@dataclass(frozen=True)
class MethodUsed:
    """A published method that a recipe names, with the papers that it is from."""

    name: str
    title: str
    papers: tuple[str, ...]
    """arXiv ids."""


@dataclass(frozen=True)
class StageTraining:
    """What the execution took that a stage's outputs are from."""

    stage: str
    hardware: str
    """Processor, and the GPU where it had one; empty where nobody noted it."""
    usage: Usage | None
    """None where nobody counted."""


def runs_behind(
    stages: Sequence[StageRun], digest: str, *, roles: Sequence[str] | None = None
) -> list[StageRun]:
    """Find the stage runs that an artifact was made by.

    Args:
        stages: In the order of the DAG.
        digest: Of the artifact.
        roles: Ports, before their dot, that are followed upward; None follows all.

    Returns:
        Those stage runs, in the same order.

    """
    wanted, found = {digest}, []
    for run in reversed(stages):
        if wanted.isdisjoint(record.digest for record in run.outputs):
            continue
        found.append(run)
        wanted.update(
            record.digest
            for record in run.inputs
            if roles is None or record.role.partition(".")[0] in roles
        )
    return found[::-1]


def weights_behind(stages: Sequence[StageRun], digest: str) -> list[StageRun]:
    """Find the stage runs that a checkpoint's weights went through; see `runs_behind`."""
    return runs_behind(stages, digest, roles=_WEIGHTS)


def base_models(stages: Sequence[StageRun], digest: str) -> list[str]:
    """Name the models of the hub that a checkpoint's weights began as.

    Args:
        stages: In the order of the DAG.
        digest: Of the checkpoint.

    Returns:
        Their names there; a model that was read from a folder has none.

    """
    imported = [_params(run) for run in weights_behind(stages, digest) if _kind(run) == _IMPORT]
    return list(dict.fromkeys(str(each["name"]) for each in imported if each.get("name")))


def is_merged(stages: Sequence[StageRun], digest: str) -> bool:
    """Tell whether a checkpoint's weights were merged out of several."""
    return any(_kind(run) == _MERGE for run in weights_behind(stages, digest))


def trainers_behind(stages: Sequence[StageRun], digest: str) -> list[str]:
    """Name the kinds of training that a checkpoint's weights went through, in their order."""
    kinds = [_kind(run) for run in weights_behind(stages, digest)]
    return list(dict.fromkeys(each for each in kinds if each in _TRAINERS))


def hub_data(stages: Sequence[StageRun]) -> list[HubData]:
    """List the data sets of the hub that stages read."""
    return list(dict.fromkeys(each for run in stages for each in _sources(_params(run))))


def is_generated(stages: Sequence[StageRun]) -> bool:
    """Tell whether a generator or a model wrote rows: a sampler, a teacher, an environment."""
    kinds = {_kind(run) for run in stages}
    made = {"probe", "rl", "coevolve", "teach", "evolve", "evaluate", "judge"} & kinds
    sources = [
        each
        for run in stages
        for each in _params(run).get("sources") or ()
        if isinstance(each, Mapping)
    ]
    # A source that is no table on a disk or at the hub computes its problems.
    computed = any(not each.get("path") and each.get("kind") != "huggingface" for each in sources)
    return bool(made) or computed


def methods_used(names: Sequence[str]) -> list[MethodUsed]:
    """Look up methods by name; names that no method's file has are left out."""
    found = []
    for name in dict.fromkeys(names):
        if has_method(name):
            method = find_method(name).method
            papers = tuple(dict.fromkeys(_ARXIV.findall(method.source.paper)))
            found.append(MethodUsed(name, method.title, papers))
    return found


def names_of_methods(sections: Mapping[str, Any], method: str) -> list[str]:
    """Read which methods a recipe names.

    Args:
        sections: Of the recipe, as they are written.
        method: What it says at its top; empty where it says none.

    Returns:
        That method, and the algorithms that sections name; none is named twice.

    """
    found = [method] if method else []
    for section in sections.values():
        said = section.get("algorithm") if isinstance(section, Mapping) else None
        name = said.get("preset") if isinstance(said, Mapping) else said
        if isinstance(name, str):
            found.append(name)
    return list(dict.fromkeys(found))


def files_behind(stages: Sequence[StageRun]) -> list[str]:
    """Name the files from outside that stages read, without their folders."""
    inputs = [record for run in stages for record in run.inputs]
    files = [each for each in inputs if str(each.type) == ArtifactKind.SOURCE]
    return list(dict.fromkeys(each.path.rpartition("/")[2] for each in files))


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


def _sources(value: object) -> Iterator[HubData]:
    """Every `kind: huggingface` in nested parameters that is no folder."""
    if isinstance(value, Mapping):
        if value.get("kind") == "huggingface" and not value.get("path") and value.get("name"):
            yield HubData(
                str(value.get("hub") or value["name"]),
                str(value.get("revision") or ""),
                value.get("subset"),
                str(value.get("split", "train")),
                value.get("use") == "heldout",
            )
        for inner in value.values():
            yield from _sources(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _sources(inner)


def _params(run: StageRun) -> dict[str, Any]:
    return nested(run.components.get("params", {}))


def _kind(run: StageRun) -> str:
    return run.task.rpartition(".")[2]


def _figures(usage: Usage | None) -> tuple[str, ...]:
    if usage is None:
        return (_UNKNOWN,) * 4
    cpu = _UNKNOWN if usage.cpu_seconds is None else _hours(usage.cpu_seconds)
    energy = _UNKNOWN if usage.joules is None else f"{usage.joules / _KWH:.4f}"
    return _hours(usage.seconds), cpu, _hours(usage.gpu_seconds), energy


def _hours(seconds: float) -> str:
    return f"{seconds / _HOUR:.4f}"
