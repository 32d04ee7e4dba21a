"""Read runs, keep their points, and draw one curve over all of them."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl
import torch

from posttrain.data.run_sources.base import FetchedRun
from posttrain.data.schemas import CURVE, row_id
from posttrain.data.tables import write_table
from posttrain.learning.maths.intervals import stratified_interval
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from posttrain.stage.seeds import purpose_seed
from tasks.import_curves import tracked_runs
from tasks.import_curves.config import ImportCurvesConfig

_ENDS = ("", "/low", "/high")
"""Behind the name of a metric in the curve: the mean, and the ends of its interval."""


def run(
    config: ImportCurvesConfig,
    inputs: Mapping[str, Path],
    outputs: Mapping[str, Path],
    context: StageContext,
) -> dict[str, float]:
    """Read, check, resample and write."""
    found = config.source.runs([*config.metrics.values()], config.where, inputs.get("files.runs"))
    runs = [each for each in found if all(each.points[m] for m in config.metrics.values())]
    if len(runs) < len(found):
        context.note(f"{len(found) - len(runs)} of {len(found)} runs lack a metric; left out")
    tasks = [_task_of(each, config.task) for each in runs]
    _check_counts(tasks, len(found), config)
    no_parents: list[str] = []
    rows = [
        (row_id(each.id, name, step), no_parents, each.id, each.name, task, step, name, value)
        for each, task in zip(runs, tasks, strict=True)
        for name, theirs in config.metrics.items()
        for step, value in sorted(each.points[theirs].items())
    ]
    write_table(pl.DataFrame(rows, tracked_runs(), orient="row"), outputs["runs"], tracked_runs())
    curve, last = _curve(runs, tasks, config, seed=purpose_seed(context.seed, "import_curves"))
    write_table(curve, outputs["curve"], CURVE)
    report = {
        "runs": [{"id": each.id, "name": each.name} for each in runs],
        "tasks": dict(Counter(tasks)),
        "without_a_metric": len(found) - len(runs),
        "confidence": config.confidence,
    }
    outputs["report"].write_text(json.dumps(report, indent=1, sort_keys=True) + "\n")
    return {"import_curves/num_runs": float(len(runs)), **last}


def _task_of(each: FetchedRun, name: str) -> str:
    if name and name not in each.facts:
        raise UserError(
            f"import_curves.task: run {each.name} ({each.id}) has no parameter or tag '{name}';"
            " correct the name, or leave such runs out by where"
        )
    return each.facts[name] if name else ""


def _check_counts(tasks: Sequence[str], num_found: int, config: ImportCurvesConfig) -> None:
    few = [(task, count) for task, count in Counter(tasks).items() if count < config.least_runs]
    if tasks and not few:
        return
    of = f" of {config.task} {few[0][0]}" if few and config.task else ""
    raise UserError(
        f"import_curves: {few[0][1] if few else 0} runs{of} have ended and have"
        f" {', '.join(config.metrics.values())}, of {num_found} that fit where;"
        f" least_runs asks for {config.least_runs}: correct metrics or where, or lower least_runs"
    )


def _curve(
    runs: Sequence[FetchedRun], tasks: Sequence[str], config: ImportCurvesConfig, *, seed: int
) -> tuple[pl.DataFrame, dict[str, float]]:
    """The curve over the steps that all runs have, and where it ends, by metric."""
    parts, last = [], {}
    for name, theirs in config.metrics.items():
        steps = sorted(set.intersection(*(set(each.points[theirs]) for each in runs)))
        if not steps:
            raise UserError(
                f"import_curves: the {len(runs)} runs have no step of {theirs} in common; choose"
                " runs that were measured at the same steps, by where"
            )
        interval = stratified_interval(
            torch.tensor([[each.points[theirs][step] for step in steps] for each in runs]),
            tasks,
            resamples=config.resamples,
            confidence=config.confidence,
            seed=seed,
        )
        for end, values in zip(_ENDS, interval, strict=True):
            columns = {"step": steps, "metric": f"{name}{end}", "value": values.tolist()}
            parts.append(pl.DataFrame(columns, schema=CURVE))
            last[f"import_curves/{name}{end}"] = float(values[-1])
    return pl.concat(parts).sort("step", maintain_order=True), last
