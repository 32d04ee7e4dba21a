"""Pose new problems around failed ones, and keep those that are solved sometimes."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random

import polars as pl

from posttrain.data.schemas import PROBLEMS, SOLVE_RATES, Problem, problems_table
from posttrain.data.sources.base import SourceRows
from posttrain.data.tables import read_table, write_table
from posttrain.learning.rollouts.scoring import problems_of
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from posttrain.stage.seeds import purpose_seed
from tasks.evolve.config import EvolveConfig, PosesAround

_DRAWS_PER_PROBLEM = 20
"""A small world runs out of different problems: after so many draws it gives what it has."""


def run(
    config: EvolveConfig,
    inputs: Mapping[str, Path],
    outputs: Mapping[str, Path],
    context: StageContext,
) -> dict[str, float]:
    """Read problems and solve rates; write what is practiced on next, and how many there are."""
    problems = problems_of(read_table(inputs["problems"], PROBLEMS))
    rates = read_table(inputs["solve_rates"], SOLVE_RATES).filter(pl.col("attempts") > 0)
    rate = dict(rates.select("problem_id", "solve_rate").iter_rows())
    attempted = [each for each in problems if each.id in rate]
    if not attempted:
        raise UserError(
            "evolve: none of the problems has a solve rate; connect the rates of a probe of these"
            " problems"
        )
    failed = [each for each in attempted if rate[each.id] <= config.failed_at_most]
    stay = [each for each in attempted if config.least <= rate[each.id] <= config.most]
    known = [*problems, *problems_of(read_table(inputs["heldout"], PROBLEMS))]
    new = list(_posed(failed, known, config, seed=context.seed))
    if not stay and not new:
        raise UserError(
            f"evolve: no attempted problem is solved from {config.least:g} to {config.most:g} of"
            " the time, and no source poses new ones around those that failed; widen least and"
            " most, or name the problems' sources"
        )
    wanted = config.per_failed * sum(each.source in _by_name(config) for each in failed)
    if len(new) < wanted:
        context.note(
            f"{len(new)} new problems in place of {wanted}: the sources have no more different ones"
        )
    write_table(problems_table([*stay, *new]), outputs["problems"], PROBLEMS)
    counts = {"attempted": attempted, "failed": failed, "stay": stay, "new": new}
    report = {
        name: dict(sorted(Counter(each.source for each in found).items()))
        for name, found in counts.items()
    }
    outputs["report"].write_text(json.dumps(report, indent=1) + "\n")
    return {f"evolve/num_{name}": float(len(found)) for name, found in counts.items()}


def _posed(
    failed: Sequence[Problem], known: Sequence[Problem], config: EvolveConfig, *, seed: int
) -> Iterator[Problem]:
    """New problems, in the order of their parents; what is posed of one hangs on no other one."""
    sources = _by_name(config)
    seen = {(each.source, each.prompt, each.answer) for each in known}
    for parent in failed:
        source = sources.get(parent.source)
        if source is None:
            continue
        left = config.per_failed
        draw = Random(purpose_seed(seed, "evolve", parent.id))
        for _ in range(left * _DRAWS_PER_PROBLEM):
            if not left:
                break
            near = source.around(parent, draw, shift=draw.choice(config.shifts))
            (posed,) = source.in_context(SourceRows([near])).train
            key = posed.source, posed.prompt, posed.answer
            if key not in seen:
                seen.add(key)
                left -= 1
                yield posed


def _by_name(config: EvolveConfig) -> Mapping[str, PosesAround]:
    return {source.name: source for source in config.sources if isinstance(source, PosesAround)}
