"""A small project whose graph, rows and numbers are known by hand.

raw.jsonl --+-> synthesize --> completions --> curate --+-> kept ----+
            |                                           +-> dropped  |
            |                                                        |
base -------|------------------------------------------> sft <------+
            |                                             |
            |                                           policy --> rl --> rollouts, tuned
            +-> (problems) ---------------------------------------^
                                     tuned --> evaluate --> report
release v1 = tuned, report
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest

from posttrain.provenance.ledger import ArtifactRecord, Ledger, Release, Run, StageRun, open_ledger
from posttrain.stage.hashing import digest_path


@dataclass
class Project:
    """The project's folder, its open ledger, and a record of every artifact by name."""

    root: Path
    ledger: Ledger
    records: dict[str, ArtifactRecord]

    def digest(self, name):
        return self.records[name].digest

    def artifact(self, name, kind, path, *, producer=None):
        found = digest_path(self.root / path)
        rows = None
        if path.endswith(".parquet"):
            rows = pl.read_parquet(self.root / path).height
        record = ArtifactRecord(name, kind, path, found.sha256, found.size, rows, producer)
        self.records[name] = record
        return record

    def stage(self, run, stage, inputs=(), outputs=(), **fields):
        """Record one execution; inputs and outputs are names of artifacts."""
        defaults = {"status": "succeeded", "started": 10.0, "ended": 12.0}
        made = [self.records[name].digest for name in (*inputs, *outputs)]
        key = hashlib.sha256(json.dumps([stage, made]).encode()).hexdigest()
        record = StageRun(
            **{
                "id": f"{run}-{stage}",
                "run_id": run,
                "stage": stage,
                "task": f"tasks.{stage}",
                "key": key,
                "inputs": tuple(self.records[name] for name in inputs),
                "outputs": tuple(self.records[name] for name in outputs),
                **defaults,
                **fields,
            }
        )
        self.ledger.record(record)
        return record


def write(root, path, data):
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(data, pl.DataFrame):
        data.write_parquet(target)
    else:
        target.write_text(data)


def table(ids, parents, **columns):
    schema = {"id": pl.String, "parents": pl.List(pl.String)}
    return pl.DataFrame({"id": ids, "parents": parents, **columns}, schema_overrides=schema)


PROBLEMS = table(["p1", "p2", "p3"], [[], [], []], source=["sum", "sum", "product"])
# Two completions of p1, one of p2, one of p3.
COMPLETIONS = table(
    ["c1", "c2", "c3", "c4"],
    [["p1"], ["p1"], ["p2"], ["p3"]],
    generator=["small", "large", "small", "large"],
    score=[1.0, 0.2, 0.9, 0.8],
)
KEPT = COMPLETIONS.filter(pl.col("score") > 0.5)
DROPPED = COMPLETIONS.filter(pl.col("score") <= 0.5).with_columns(reason=pl.lit("low score"))
ROLLOUTS = table(["r1", "r2"], [["p1"], ["p3"]], reward=[1.0, 0.0])


@pytest.fixture
def project(tmp_path):
    (tmp_path / ".dvc").mkdir()
    write(tmp_path, "raw.jsonl", "{}\n")
    write(tmp_path, "data/problems/problems.parquet", PROBLEMS)
    write(tmp_path, "data/synthesize/completions.parquet", COMPLETIONS)
    write(tmp_path, "data/curate/kept.parquet", KEPT)
    write(tmp_path, "data/curate/dropped.parquet", DROPPED)
    for name in ("base", "sft/policy", "rl/tuned"):
        write(tmp_path, f"data/{name}/model.safetensors", f"weights of {name}")
    write(tmp_path, "data/rl/rollouts.parquet", ROLLOUTS)
    write(tmp_path, "data/evaluate/report.json", '{"accuracy": 0.5}')
    write(tmp_path, ".posttrain/runs/first/rl.log", "step 1\nstep 2 <script>alert(1)</script>\n")
    with open_ledger(tmp_path / ".posttrain" / "ledger.db") as ledger:
        made = Project(tmp_path, ledger, {})
        _record(made)
        yield made


def _record(made):
    made.artifact("raw", "source", "raw.jsonl")
    made.artifact("base", "checkpoint", "data/base")
    made.artifact("problems", "problems", "data/problems/problems.parquet", producer="problems")
    path = "data/synthesize/completions.parquet"
    made.artifact("completions", "completions", path, producer="synthesize")
    made.artifact("kept", "completions", "data/curate/kept.parquet", producer="curate")
    made.artifact("dropped", "dropped", "data/curate/dropped.parquet", producer="curate")
    made.artifact("policy", "checkpoint", "data/sft/policy", producer="sft")
    made.artifact("rollouts", "rollouts", "data/rl/rollouts.parquet", producer="rl")
    made.artifact("tuned", "checkpoint", "data/rl/tuned", producer="rl")
    made.artifact("report", "report", "data/evaluate/report.json", producer="evaluate")
    made.ledger.append_run(
        Run("first", "gsm8k", 9.0, status="succeeded", ended=99.0, git_commit="c0ffee"),
        process="elsewhere 1 x",
    )
    made.stage("first", "problems", ["raw"], ["problems"])
    made.stage("first", "synthesize", ["problems"], ["completions"])
    threshold = {"params": {"threshold": "0.5"}, "code": {"tasks.curate:run": "aa"}}
    made.stage(
        "first", "curate", ["completions"], ["kept", "dropped"], components=threshold,
        metrics={"kept": 3.0},
    )  # fmt: skip
    made.stage("first", "sft", ["kept", "base"], ["policy"], metrics={"loss": 1.5}, ended=40.0)
    made.stage(
        "first", "rl", ["policy", "problems"], ["tuned", "rollouts"],
        metrics={"reward": float("nan")}, log_path=".posttrain/runs/first/rl.log",
    )  # fmt: skip
    made.stage("first", "evaluate", ["tuned"], ["report"], metrics={"accuracy": 0.5})
    members = (made.records["tuned"], made.records["report"])
    made.ledger.annotations.release(Release("v1", 100.0, members, "c0ffee"))
