"""Benchmarks: tasks of lm-evaluation-harness, by name or by a YAML of one's own, on a policy."""

from typing import TYPE_CHECKING

from posttrain.stage.spec import ArtifactKind, Port, Task
from tasks.lm_eval.config import LmEvalConfig

if TYPE_CHECKING:
    import polars as pl


def documents_schema() -> "pl.Schema":
    """Columns of the documents that a task asks about."""
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
    """Columns of what the policy was asked and said, and how it was scored."""
    import polars as pl

    text = pl.String()
    words = ("task", "filter", "prompt", "target", "responses", "filtered", "scores")
    return pl.Schema({"id": text, "parents": pl.List(text), **dict.fromkeys(words, text)})


DOCUMENTS = ArtifactKind(
    "benchmark_documents", suffix=".parquet", shape="table", schema=documents_schema
)
SAMPLES = ArtifactKind("benchmark_samples", suffix=".parquet", shape="table", schema=samples_schema)

TASK = Task(
    package="tasks.lm_eval",
    config=LmEvalConfig,
    inputs={"policy": Port(ArtifactKind.CHECKPOINT, "policy to evaluate")},
    outputs={
        "report": Port(ArtifactKind.REPORT, "figures with standard errors, and what they are of"),
        "documents": Port(DOCUMENTS, "what was asked about"),
        "samples": Port(SAMPLES, "every prompt, response and score; parents are the documents"),
    },
)
