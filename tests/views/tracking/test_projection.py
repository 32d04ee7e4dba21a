"""Ledger records as a tracker sees them."""

from posttrain.provenance.ledger.records import ArtifactRecord, Run, StageRun
from posttrain.views.tracking.base import MemoryTracker
from posttrain.views.tracking.projection import replay

TABLE = ArtifactRecord("problems", "problems", "data/a/problems.parquet", "aa", 10, 3, "a")
MODEL = ArtifactRecord("policy", "checkpoint", "data/b/policy", "bb", 99, None, "b")
RUN = Run(
    "run1",
    "demo",
    100.0,
    command="posttrain run",
    ended=160.0,
    status="failed",
    git_commit="c0ffee",
    git_dirty=True,
    overrides={"b.steps": "4"},
)


def stage(name: str, status: str, **facts: object) -> StageRun:
    return StageRun(
        id=f"{name}-id",
        run_id="run1",
        stage=name,
        task=f"tasks.{name}",
        key=f"key-{name}",
        status=status,  # type: ignore[arg-type]
        started=110.0,
        ended=120.0,
        **facts,  # type: ignore[arg-type]
    )


def test_a_replay_tells_what_was_executed_and_nothing_that_was_reused() -> None:
    history = [
        (
            RUN,
            [
                stage("a", "cached", outputs=(TABLE,)),
                stage(
                    "b",
                    "succeeded",
                    inputs=(TABLE,),
                    outputs=(MODEL,),
                    metrics={"b/loss": 0.5},
                    timings={"execute": 9.0},
                    components={"params": {"steps": "4", "optimizer": '"adamw"', "names": '["a"]'}},
                ),
                stage("c", "failed", error="out of memory", attempt=2),
            ],
        ),
        (Run("run2", "demo", 200.0), [stage("a", "cached")]),
    ]
    tracker = MemoryTracker()
    told = replay(history, tracker)
    assert told == ({"run1": "demo-0"}, {"b-id": "b-1", "c-id": "c-2"})
    parent, b, c = tracker.runs.values()

    assert parent.started.name == "demo"
    assert parent.started.at == 100.0
    assert parent.started.tags["mlflow.source.git.commit"] == "c0ffee"
    assert parent.started.tags["posttrain.git_dirty"] == "true"
    assert parent.started.params == {"b.steps": "4"}
    assert parent.finished is not None
    assert (parent.finished.status, parent.finished.at) == ("failed", 160.0)

    assert b.started.parent == "demo-0"
    assert b.started.params == {"steps": "4", "optimizer": "adamw", "names": '["a"]'}
    assert b.started.inputs == (TABLE,)
    assert b.started.tags["posttrain.key"] == "key-b"
    assert b.finished is not None
    assert b.finished.metrics == {"b/loss": 0.5, "seconds/execute": 9.0}
    assert b.finished.tags == {"posttrain.output.policy": "data/b/policy bb"}
    assert (b.finished.status, b.finished.outputs, b.finished.at) == ("succeeded", (MODEL,), 120.0)

    assert c.finished is not None
    assert (c.finished.status, c.finished.tags) == ("failed", {"posttrain.error": "out of memory"})
    assert c.started.tags["posttrain.attempt"] == "2"
