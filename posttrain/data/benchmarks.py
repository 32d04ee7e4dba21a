"""What other people's benchmarks asked and got: tables that the stages around them share."""

import json
from typing import TYPE_CHECKING, Any

from posttrain.stage.artifact_kinds import ArtifactKind

if TYPE_CHECKING:
    import polars as pl


def documents_schema() -> "pl.Schema":
    """Columns of the documents that tasks ask about; `document` is JSON."""
    import polars as pl

    text = pl.String()
    return pl.Schema(
        {
            "id": text,
            "parents": pl.List(text),
            "task": text,
            "number": pl.Int64(),
            "document": text,
        }
    )


def samples_schema() -> "pl.Schema":
    """Columns of what a policy was asked and said; the parent of a row is its document.

    `variant` tells rows of one document apart, such as filters or epochs; `responses`, `filtered`
    and `scores` are JSON.
    """
    import polars as pl

    text = pl.String()
    words = ("task", "variant", "prompt", "target", "responses", "filtered", "scores")
    return pl.Schema({"id": text, "parents": pl.List(text), **dict.fromkeys(words, text)})


BENCHMARK_DOCUMENTS = ArtifactKind(
    "benchmark_documents", suffix=".parquet", shape="table", schema=documents_schema
)
BENCHMARK_SAMPLES = ArtifactKind(
    "benchmark_samples", suffix=".parquet", shape="table", schema=samples_schema
)


def as_json(value: Any) -> str:
    """Spell what a benchmark holds, whatever it is: the same for equal values."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
