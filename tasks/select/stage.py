"""Rank problems by an earlier run, and keep those of some places."""

import json
import math
from collections.abc import Mapping
from pathlib import Path

from posttrain.data.rankings.base import accuracy_curves
from posttrain.data.schemas import PROBLEMS, ROLLOUTS
from posttrain.data.tables import read_table, write_table
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from posttrain.stage.slots import name_of
from tasks.select.config import SelectConfig


def run(
    config: SelectConfig,
    inputs: Mapping[str, Path],
    outputs: Mapping[str, Path],
    context: StageContext,
) -> dict[str, float]:
    """Rank, and write the chosen problems in the order of the ranking."""
    problems = read_table(inputs["problems"], PROBLEMS)
    drawn = accuracy_curves(read_table(inputs["rollouts"], ROLLOUTS))
    places = {name: place for place, name in enumerate(problems["id"]) if name in drawn}
    curves = {name: drawn[name] for name in places if len(drawn[name]) >= config.least_visits}
    last = config.first - 1 + config.number
    if len(curves) < last:
        raise UserError(
            f"select: {len(curves)} of {len(problems)} problems were visited"
            f" {config.least_visits} times by the earlier run, and places {config.first} to {last}"
            " of their ranking are asked for; lower number, first or least_visits, or let that run"
            " go on for longer"
        )
    scores = config.ranking.scores(curves)
    if wrong := [name for name in curves if not math.isfinite(scores.get(name, math.nan))]:
        raise UserError(
            f"select: {name_of(config.ranking)} gave problem {wrong[0]} no finite score; let"
            " `scores` give one for every problem"
        )
    # Of equal scores the first of the table goes before.
    chosen = sorted(curves, key=lambda name: -scores[name])[config.first - 1 : last]
    write_table(problems[[places[name] for name in chosen]], outputs["problems"], PROBLEMS)
    report = {
        "ranking": config.ranking.kind,
        "problems": len(problems),
        "visited": len(places),
        "ranked": len(curves),
        "chosen": [
            {"id": name, "score": scores[name], "accuracies": list(curves[name])} for name in chosen
        ],
    }
    outputs["report"].write_text(json.dumps(report, indent=1, sort_keys=True) + "\n")
    if len(curves) < len(problems):
        context.note(f"{len(problems) - len(curves)} of {len(problems)} problems are not ranked")
    return {
        "select/num_ranked": float(len(curves)),
        "select/highest_score": scores[chosen[0]],
        "select/lowest_score": scores[chosen[-1]],
    }
