"""A small run on disk: every kind of artifact that the report knows, with figures set by hand."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest

from posttrain.provenance.ledger.records import ArtifactRecord, StageRun
from posttrain.views.report import StageFacts
from tasks.evaluate.report import (
    Change,
    Estimate,
    EstimateAt,
    Exhibit,
    PolicyReport,
    Report,
    ShownCompletion,
    Slice,
)
from tasks.evaluate.report import write_report as write_evaluation

HOSTILE = '</pre><script>alert("x")</script>'


def policy(name: str, rate: float, change: Change | None) -> PolicyReport:
    near = Estimate(rate, rate - 0.05, rate + 0.05)
    slices = (Slice("easy", 6, near), Slice("hard", 4, near))
    return PolicyReport(
        name=name,
        digest=name * 4,
        pass_at=(
            EstimateAt(1, rate, rate - 0.05, rate + 0.05),
            EstimateAt(4, rate + 0.1, rate + 0.05, rate + 0.15),
        ),
        majority=EstimateAt(4, rate + 0.02, rate, rate + 0.04),
        best_of=(EstimateAt(1, rate, 0.0, 1.0), EstimateAt(4, rate + 0.08, 0.3, 0.9)),
        mean_length=31.25,
        truncation_rate=0.0,
        format_rate=1.0,
        by_source=slices,
        by_difficulty=slices,
        solve_histogram=(4, 1, 0, 2, 3),
        change=change,
    )


def evaluation() -> Report:
    change = Change("sft", Estimate(0.4, 0.31, 0.49), ("p1", "p2", "p3"), ("p4",), ())
    shown = (
        ShownCompletion("sft", HOSTILE, 0.0, "expected 5, found 6", 0.25),
        ShownCompletion("rl", "2 + 3 = 5\n#### 5", 1.0, "", 0.75),
    )
    return Report(
        layout=1,
        seed=0,
        num_problems=10,
        num_samples=4,
        temperature=1.0,
        max_tokens=64,
        reward_model="rrrr",
        policies=(policy("sft", 0.4, None), policy("rl", 0.8, change)),
        exhibits=(Exhibit("p1", "chain_sum", 2, "2 + 3 =", "5", shown),),
    )


REWARD = {
    "accuracy": 0.9,
    "accuracy_low": 0.85,
    "accuracy_high": 0.95,
    "auroc": 0.93,
    "ece": 0.02,
    "length_accuracy": 0.6,
    "num_pairs": 120,
    "by_source": {"a": {"num_pairs": 60, "accuracy": 0.8}, "b": {"num_pairs": 60, "accuracy": 1.0}},
    "reliability": [
        {"count": 10, "claimed": 0.25, "happened": 0.3},
        {"count": 0, "claimed": 0.5, "happened": 0.0},
        {"count": 40, "claimed": 0.75, "happened": 0.7},
    ],
}


@dataclass
class Workspace:
    """Stages and artifacts as a run hands them to the report."""

    stages: list[StageFacts]
    artifacts: dict[str, Path]


def record(stage: str, reads: Mapping[str, str], outputs: list[ArtifactRecord]) -> StageFacts:
    inputs = tuple(
        ArtifactRecord(role, "problems", f"data/{producer}/{role}", "d" * 64, 1, producer=producer)
        for role, producer in reads.items()
    )
    run = StageRun(
        id=f"{stage}-id",
        run_id="run",
        stage=stage,
        task=f"tasks.{stage}",
        key=f"{stage:0<64}",
        status="cached" if stage == "make" else "succeeded",
        started=100.0,
        ended=112.0,
        inputs=inputs,
        outputs=tuple(outputs),
    )
    return StageFacts(run, 12.0)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    artifacts: dict[str, Path] = {}

    def output(stage: str, role: str, kind: str, rows: int | None = None) -> ArtifactRecord:
        path = tmp_path / stage / role
        path.parent.mkdir(exist_ok=True)
        artifacts[f"{stage}.{role}"] = path
        return ArtifactRecord(role, kind, f"data/{stage}/{role}", "ab" * 32, 2_500, rows, stage)

    stages = [
        record("make", {}, [output("make", "dropped", "dropped", 3)]),
        record("train", {"dropped": "make"}, [output("train", "curve", "curve", 60)]),
        record("probe", {"curve": "train"}, [output("probe", "rates", "solve_rates", 4)]),
        record("grade", {"rates": "probe"}, [output("grade", "report", "report")]),
        record(
            "judge",
            {"rates": "probe", "dropped": "make", "curve": "train"},
            [output("judge", "report", "report")],
        ),
    ]
    pl.DataFrame({"reason": ["too long", "too long", "duplicate"]}).write_parquet(
        artifacts["make.dropped"]
    )
    steps = [(step, name, 1.0 / step) for step in range(1, 31) for name in ("x/loss", "x/lr")]
    pl.DataFrame(steps, schema=["step", "metric", "value"], orient="row").write_parquet(
        artifacts["train.curve"]
    )
    pl.DataFrame(
        {"solve_rate": [0.0, 0.25, 0.25, 1.0], "difficulty": [2, 1, 1, 1], "attempts": [4] * 4}
    ).write_parquet(artifacts["probe.rates"])
    artifacts["grade.report"].write_text(json.dumps(REWARD))
    write_evaluation(evaluation(), artifacts["judge.report"])
    return Workspace(stages, artifacts)
