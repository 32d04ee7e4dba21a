"""Which verifier scores the answers to a source's problems: said once, beside the problems.

What a row says of its own verifier (options, a pattern) stands in the row. What the recipe says
stands in an artifact of its own, source by source, so that another verifier leaves the problems as
they are, with their ids, and runs again what scores and nothing else.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from posttrain.data.schemas import PROBLEMS, Problem
from posttrain.data.sources.base import Source, SourceRows
from posttrain.data.tables import read_table
from posttrain.stage.errors import UserError
from posttrain.stage.slots import Part


def scored_by_source(rows: SourceRows, source: Source) -> SourceRows:
    """Take the verifier of a source out of its problems, where they name no other one.

    Args:
        rows: What the source gave.
        source: The source; without a verifier of its own its rows stay as they are.

    Returns:
        The same rows; the problems are scored by their source's verifier.

    """
    verifier = getattr(source, "verifier", None)
    if not isinstance(verifier, Part):
        return rows
    said = _said(verifier)
    scored_by = json.dumps(said, sort_keys=True)
    known: dict[int, Problem] = {}

    def without(problem: Problem) -> Problem:
        if id(problem) not in known:
            found = problem
            if problem.verifier in ("", verifier.kind):
                metadata = _own(problem.metadata, said) if problem.verifier else problem.metadata
                found = replace(problem, verifier="", metadata=metadata, scored_by=scored_by)
            known[id(problem)] = found
        return known[id(problem)]

    return SourceRows(
        train=[without(each) for each in rows.train],
        heldout=[without(each) for each in rows.heldout],
        solutions=[replace(each, problem=without(each.problem)) for each in rows.solutions],
    )


def write_verifiers(path: Path, sources: Mapping[str, Part]) -> None:
    """Write which verifier scores the problems of each source.

    Args:
        path: File to write, JSON.
        sources: Name of the source -> its verifier.

    """
    said = {name: _said(verifier) for name, verifier in sources.items()}
    path.write_text(json.dumps(said, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def read_verifiers(path: Path) -> dict[str, dict[str, Any]]:
    """Return kind and settings of each source's verifier.

    Args:
        path: What `write_verifiers` wrote.

    """
    return dict(json.loads(path.read_text(encoding="utf-8")))


def read_scored_problems(problems: Path, verifiers: Path | None) -> pl.DataFrame:
    """Read problems, each with the verifier that scores its answers.

    Args:
        problems: A PROBLEMS table.
        verifiers: The verifiers of their sources, where they are connected.

    Returns:
        The table with a column `scored_by`: JSON of the source's verifier, empty for a row that
        names its own, as those of older tables do.

    Raises:
        UserError: A row names no verifier, and its source has none either.

    """
    table = read_table(problems, PROBLEMS)
    found = {} if verifiers is None else read_verifiers(verifiers)
    said = {name: json.dumps(each, sort_keys=True) for name, each in found.items()}
    unnamed = pl.col("verifier") == ""
    scored_by = pl.col("source").replace_strict(said, default="", return_dtype=pl.String)
    table = table.with_columns(scored_by=pl.when(unnamed).then(scored_by).otherwise(pl.lit("")))
    lost = table.filter(unnamed & (pl.col("scored_by") == ""))
    if len(lost):
        what = (
            f"{verifiers} has none for source '{lost['source'][0]}'; connect the verifiers of the"
            " stage that made these problems"
            if verifiers
            else "no verifiers are connected; connect those of the stage that made them, such as"
            " inputs: {verifiers: synthesize.verifiers}"
        )
        raise UserError(f"{problems}: {len(lost)} problems name no verifier, and {what}")
    return table


def _said(verifier: Part) -> dict[str, Any]:
    """Kind and all settings, as JSON has them."""
    values: dict[str, Any] = json.loads(json.dumps(verifier.model_dump(mode="json")))
    return values


def _own(metadata: str, said: Mapping[str, Any]) -> str:
    """A row's metadata without what its source says of the verifier."""
    values = json.loads(metadata)
    given = values.pop(said["kind"], None)
    if given is None:
        return metadata
    own = {name: value for name, value in given.items() if said.get(name) != value}
    return json.dumps({**values, **({said["kind"]: own} if own else {})})
