"""A sample of a stage's rollouts in MLflow: a table among the artifacts, and a trace of each."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

_FILE = "rollouts_sample.json"
STEPS, PER_STEP = 8, 3
"""At most so many steps, the first and the last among them, and so many rollouts of each."""
_ABOUT = ("problem_id", "step", "source", "role")
_COLUMNS = ("id", "problem_id", "source", "step", "role", "text", "reward", "solved", "components")
_LONGEST_TEXT = 20_000


def show_samples(
    client: Any,
    rollouts: Path,
    problems: Path | None,
    *,
    run_id: str,
    experiment: str,
    moment: float,
) -> None:
    """Log a sample of rollouts to a run.

    Args:
        client: Of MLflow.
        rollouts: Table of rollouts.
        problems: Table of their problems, where it is there.
        run_id: MLflow's id of the stage's run.
        experiment: Its experiment.
        moment: When the stage ended: rollouts do not say when they were drawn.

    """
    rows = sample_rollouts(rollouts, problems)
    _log_table(client, run_id, rows)
    _log_traces(client, rows, run_id=run_id, experiment=experiment, moment=moment)


def _log_table(client: Any, run_id: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """As MLflow's own `log_table`, which wants pandas: its page draws such a file as a table."""
    columns = list(rows[0]) if rows else []
    with TemporaryDirectory() as folder:
        file = Path(folder, _FILE)
        table = {"columns": columns, "data": [[row[name] for name in columns] for row in rows]}
        file.write_text(json.dumps(table), encoding="utf-8")
        client.log_artifact(run_id, file)
    listed = json.dumps([{"path": _FILE, "type": "table"}])
    client.set_tag(run_id, "mlflow.loggedArtifacts", listed)


def _log_traces(
    client: Any, rows: Sequence[Mapping[str, Any]], *, run_id: str, experiment: str, moment: float
) -> None:
    """A trace with one span for each rollout; it says what was asked, answered and paid."""
    # Else a thread writes them, which nobody waits for.
    os.environ["MLFLOW_ENABLE_ASYNC_TRACE_LOGGING"] = "false"
    import mlflow

    # Traces go where the whole process writes to, whatever the client is of.
    mlflow.set_tracking_uri(client.tracking_uri)
    nanoseconds = int(moment * 1e9)
    for row in rows:
        known = {name: row[name] for name in ("reward", "solved", "components") if name in row}
        span = client.start_trace(
            "rollout",
            span_type="LLM",
            inputs=row.get("prompt") or f"problem {row['problem_id']}",
            attributes={name: row[name] for name in _ABOUT if name in row},
            tags={"posttrain.rollout": str(row["id"]), "posttrain.step": str(row["step"])},
            experiment_id=experiment,
            start_time_ns=nanoseconds,
            run_id=run_id,
        )
        client.end_trace(
            span.trace_id,
            outputs=row.get("text"),
            attributes=known,
            end_time_ns=nanoseconds,
        )


def sample_rollouts(rollouts: Path, problems: Path | None) -> list[dict[str, Any]]:
    """Take rollouts from steps at even distances; their ids, which are hashes, decide which.

    Args:
        rollouts: The parquet file.
        problems: That of the problems, for the text of their prompts, where it is there.

    Returns:
        Rows in the order of their steps: what is known of each in words and figures, without
        tokens. Texts are cut at 20,000 characters.

    """
    import polars as pl

    table = pl.scan_parquet(rollouts)
    known = table.collect_schema().names()
    steps = table.select(pl.col("step").unique().sort()).collect()["step"].to_list()
    chosen = (
        table.filter(pl.col("step").is_in(evenly(steps, STEPS)))
        .select(name for name in _COLUMNS if name in known)
        .sort("step", "id")
        .group_by("step", maintain_order=True)
        .head(PER_STEP)
        .collect()
    )
    if problems is not None:
        asked = pl.scan_parquet(problems).select(pl.col("id").alias("problem_id"), "prompt")
        wanted = asked.filter(pl.col("problem_id").is_in(chosen["problem_id"].to_list()))
        found = wanted.unique("problem_id", keep="first").collect()
        chosen = chosen.join(found, on="problem_id", how="left", maintain_order="left")
    texts = [name for name in ("text", "prompt") if name in chosen.columns]
    return chosen.with_columns(pl.col(texts).str.slice(0, _LONGEST_TEXT)).to_dicts()


def evenly(values: list[int], count: int) -> list[int]:
    """At most `count` of some sorted values at even distances, the first and the last among them.

    >>> evenly([1, 2, 3, 4, 5, 6, 7, 8, 9], 3)
    [1, 5, 9]
    >>> evenly([4, 7], 3)
    [4, 7]
    """
    if len(values) <= count:
        return values
    return [values[round(each * (len(values) - 1) / (count - 1))] for each in range(count)]
