"""Filter problems and their solutions; what goes is kept beside what stays, with the reason."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from posttrain.data.filters.apply import ORDERS, apply_filters, count_reasons, count_reasons_by
from posttrain.data.filters.base import FilterInputs
from posttrain.data.filters.bucket_size import bucket
from posttrain.data.filters.parallel import parallel_over
from posttrain.data.schemas import COMPLETIONS, DROPPED, PROBLEMS
from posttrain.data.tables import read_table, write_table
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from tasks.curate.config import CurateConfig


def run(
    config: CurateConfig,
    inputs: Mapping[str, Path],
    outputs: Mapping[str, Path],
    context: StageContext,
) -> dict[str, float]:
    """Filter problems, then the traces of those that stay; order both; write all and a report."""
    # Sorted by id, every "first one stays" below means the same for any order of the input.
    problems = read_table(inputs["problems"], PROBLEMS)
    problems = problems.sort("id", "difficulty", "metadata", "origin_file", "origin_line")
    heldout = read_table(inputs["heldout"], PROBLEMS, columns=["id", "prompt"])
    traces = read_table(inputs["traces"], COMPLETIONS).sort("id", "score", "reason")

    known = FilterInputs(heldout, difficulty_edges=config.difficulty_edges)
    with parallel_over(context.ray) as parallel:
        kept, dropped = apply_filters(
            problems, config.problem_filters, replace(known, parallel=parallel)
        )
    _refuse_empty(kept, dropped, "problems")
    _refuse_cutting(kept, dropped, "problems", most=config.most_too_long)
    context.progress(1, 2, "table")
    known = replace(known, problems=kept, dropped=dropped)
    kept_traces, dropped_traces = apply_filters(traces, config.trace_filters, known)
    if len(traces):
        _refuse_empty(kept_traces, dropped_traces, "traces")
        _refuse_cutting(kept_traces, dropped_traces, "traces", most=config.most_too_long)
    context.progress(2, 2, "table")

    arrange = ORDERS[config.order]
    write_table(arrange(kept), outputs["problems"], PROBLEMS)
    write_table(arrange(kept_traces), outputs["traces"], COMPLETIONS)
    write_table(dropped, outputs["dropped_problems"], DROPPED)
    write_table(dropped_traces, outputs["dropped_traces"], DROPPED)
    report = {
        "problems": _counts(config, kept, dropped),
        "traces": _counts(config, kept_traces, dropped_traces),
    }
    outputs["report"].write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    for name, counts in report.items():
        context.note(f"{name}: {counts['kept']} of {counts['read']} stay; {counts['dropped']}")
    return {
        "curate/num_problems": float(len(kept)),
        "curate/num_dropped_problems": float(len(dropped)),
        "curate/num_traces": float(len(kept_traces)),
        "curate/num_dropped_traces": float(len(dropped_traces)),
    }


def _refuse_cutting(kept: pl.DataFrame, dropped: pl.DataFrame, what: str, *, most: float) -> None:
    """Stop where a limit of length takes too much of a source; less of it is in the report."""
    long = dropped.filter(reason="too_long")["source"].value_counts(sort=True)
    rows = pl.concat([kept.select("source"), dropped.select("source")])["source"].to_list()
    for source, count in long.rows():
        share = count / rows.count(source)
        if share > most:
            raise UserError(
                f"curate: {share:.0%} of the {what} of {source} are longer than the length filters'"
                " `most`; raise it, or curate.most_too_long to go on with the short ones alone"
            )


def _counts(config: CurateConfig, kept: pl.DataFrame, dropped: pl.DataFrame) -> dict[str, Any]:
    """The part of the report about one table."""
    buckets = bucket(config.difficulty_edges)
    return count_reasons(kept, dropped) | {
        "by_source": count_reasons_by(kept, dropped, "source", pl.col("source")),
        "by_difficulty": count_reasons_by(kept, dropped, "bucket", buckets),
    }


def _refuse_empty(kept: pl.DataFrame, dropped: pl.DataFrame, what: str) -> None:
    """Stop where nothing is left to hand on."""
    if len(kept):
        return
    if not len(dropped):
        raise UserError(f"curate: there are no {what} to curate; check the stage before")
    reason, count = next(iter(count_reasons(kept, dropped)["dropped"].items()))
    raise UserError(
        f"curate: no {what} are left; {count} of {len(dropped)} went as '{reason}', "
        "so loosen that filter or check the data"
    )
