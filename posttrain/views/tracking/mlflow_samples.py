"""A sample of a stage's rollouts in MLflow: a table among the artifacts, and a trace of each."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from posttrain.views.tracking.rollout_sample import sample_rollouts

_FILE = "rollouts_sample.json"


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
            inputs={"problem": row["problem_id"], "prompt": row.get("prompt")},
            attributes={name: row[name] for name in ("step", "source", "role") if name in row},
            tags={"posttrain.rollout": str(row["id"]), "posttrain.step": str(row["step"])},
            experiment_id=experiment,
            start_time_ns=nanoseconds,
            run_id=run_id,
        )
        client.end_trace(
            span.trace_id,
            outputs={"text": row.get("text")},
            attributes=known,
            end_time_ns=nanoseconds,
        )
