"""Two runs side by side."""

import math

from posttrain.provenance.ledger import Run
from posttrain.provenance.lineage.compare import ValueChange, compare_runs


def second_run(project):
    project.ledger.append_run(Run("second", "gsm8k", 20.0), process="elsewhere 1 x")
    return project.ledger.run("second")


def test_cause_outputs_and_metrics_of_each_stage(project):
    second = second_run(project)
    project.artifact("few", "completions", "data/curate/dropped.parquet")
    project.stage(
        "second", "curate", ["completions"], ["few"], metrics={"kept": 1.0, "new": 2.0},
        components={"params": {"threshold": "0.9"}, "code": {"tasks.curate:run": "aa"}},
    )  # fmt: skip
    project.stage("second", "synthesize", ["problems"], ["completions"], status="cached")
    found = compare_runs(project.ledger, project.ledger.run("first"), second)
    assert [each.stage for each in found] == [
        "curate", "synthesize", "problems", "sft", "rl", "evaluate",
    ]  # fmt: skip
    curate, synthesize, problems = found[:3]
    assert all(part in curate.cause for part in ("threshold", "0.5", "0.9"))
    kept = project.digest("kept")[:12] + " (3 rows)"
    few = project.digest("few")[:12] + " (1 rows)"
    assert ValueChange("kept", kept, None) in curate.outputs
    assert ValueChange("few", None, few) in curate.outputs
    assert curate.metrics == (ValueChange("kept", 3.0, 1.0), ValueChange("new", None, 2.0))
    assert not curate.same
    assert synthesize.same
    assert problems.after is None
    assert not problems.same


def test_a_run_equals_itself_even_where_a_metric_is_no_number(project):
    first = project.ledger.run("first")
    found = compare_runs(project.ledger, first, first)
    assert math.isnan(next(each for each in found if each.stage == "rl").before.metrics["reward"])
    assert all(each.same for each in found)


def test_the_last_attempt_of_a_stage_counts(project):
    second = second_run(project)
    project.stage("second", "sft", ["kept", "base"], [], status="failed", id="one")
    project.stage("second", "sft", ["kept", "base"], ["policy"], id="two", attempt=2)
    sft = compare_runs(project.ledger, second, second)[0]
    assert sft.after.id == "two"


def test_a_key_that_differs_without_a_known_component_is_still_a_cause(project):
    second = second_run(project)
    project.stage("second", "evaluate", ["tuned"], ["report"], key="f" * 64)
    found = compare_runs(project.ledger, project.ledger.run("first"), second)
    cause = next(each.cause for each in found if each.stage == "evaluate")
    assert cause.startswith("key ")
    assert cause.endswith("-> ffffffffffff")
