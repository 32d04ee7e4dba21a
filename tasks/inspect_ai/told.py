"""What a log of Inspect tells: documents, samples, figures."""

import math
from collections.abc import Sequence
from typing import Any

import polars as pl

from posttrain.data.benchmarks import as_json, documents_schema, samples_schema
from posttrain.data.schemas import row_id
from posttrain.learning.maths.score_intervals import score_interval

_MEANS = ("accuracy", "mean")


def firsts(samples: Sequence[Any]) -> list[Any]:
    """One sample of every document, in the order of the data set: epochs make several."""
    return list({str(each.id): each for each in reversed(samples)}.values())[::-1]


def document_of(sample: Any) -> str:
    """Spell what a sample asks about, the same in every epoch."""
    asked = sample.input
    said = asked if isinstance(asked, str) else [[each.role, each.text] for each in asked]
    return as_json(
        {
            "id": sample.id,
            "input": said,
            "choices": sample.choices,
            "target": sample.target,
        }
    )


def _document_id(log: Any, sample: Any) -> str:
    return row_id("document", log.eval.task, document_of(sample))


def documents_of(log: Any) -> pl.DataFrame:
    """Rows of the documents, in the order of the data set."""
    rows = [
        {
            "id": _document_id(log, each),
            "parents": [],
            "task": log.eval.task,
            "number": number,
            "document": document_of(each),
        }
        for number, each in enumerate(firsts(log.samples))
    ]
    return pl.DataFrame(rows, schema=documents_schema())


def samples_of(log: Any) -> pl.DataFrame:
    """Rows of the samples, whose parents are documents."""
    rows = []
    for each in log.samples:
        parent, said = _document_id(log, each), [[m.role, m.text] for m in each.messages]
        scores = {name: score.value for name, score in (each.scores or {}).items()}
        rows.append(
            {
                "id": row_id("sample", parent, each.epoch, as_json(said)),
                "parents": [parent],
                "task": log.eval.task,
                "variant": f"epoch {each.epoch}",
                "prompt": as_json(said[:-1]),
                "target": as_json(each.target),
                "responses": as_json([each.output.completion]),
                "filtered": as_json([s.answer for s in (each.scores or {}).values()]),
                "scores": as_json(scores),
            }
        )
    return pl.DataFrame(rows, schema=samples_schema())


def figures_of_log(log: Any) -> dict[str, Any]:
    """Every metric of every scorer; means have an interval over documents."""
    figures = {}
    for score in log.results.scores if log.results else ():
        every = {name: metric.value for name, metric in score.metrics.items()}
        found = {name: value for name, value in every.items() if math.isfinite(value)}
        error = found.get("stderr")
        for name in found.keys() - {"stderr"}:
            is_mean = name in _MEANS
            figures[f"{score.name}/{name}"] = {
                "value": float(found[name]),
                "stderr": float(error) if error is not None and is_mean else None,
                **(_interval(log, score, found[name]) if is_mean else {"low": None, "high": None}),
            }
    return figures


def _interval(log: Any, score: Any, value: float) -> dict[str, float | None]:
    """A 95% interval over documents, of which each may have several epochs."""
    from inspect_ai.scorer import value_to_float

    read = value_to_float()
    numbers = {str(each.id): place for place, each in enumerate(firsts(log.samples))}
    told = [each for each in log.samples if each.scores and score.name in each.scores]
    found = score_interval(
        [read(each.scores[score.name].value) for each in told],
        [numbers[str(each.id)] for each in told],
        mean=value,
    )
    low, high = found or (None, None)
    return {"low": low, "high": high}
