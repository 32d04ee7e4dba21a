"""What depends on a node, and the stages that must run again to replace it."""

import pytest

from posttrain.provenance.ledger import Run
from posttrain.provenance.lineage.impact import impact
from posttrain.provenance.lineage.names import find_node


def ask(project, name):
    node = find_node(project.ledger, name, root=project.root, cwd=project.root)
    return impact(project.ledger, node, project.root)


def names(project, found):
    known = {record.digest: name for name, record in project.records.items()}
    return [known.get(node.facts.get("digest"), node.name) for node in found.affected]


def test_releases_come_first_then_models_then_reports_then_data(project):
    found = ask(project, "data/curate/kept.parquet")
    assert names(project, found) == ["v1", "policy", "tuned", "report", "rollouts"]


def test_rebuild_starts_at_the_maker_and_follows_the_order_of_making(project):
    found = ask(project, "data/curate/kept.parquet")
    assert [each.stage for each in found.rebuild] == ["curate", "sft", "rl", "evaluate"]
    # curate 2 s, sft from 10 to 40, rl and evaluate 2 s each
    assert [each.seconds for each in found.rebuild] == [2.0, 30.0, 2.0, 2.0]
    assert [each.stage for each in ask(project, "raw.jsonl").rebuild] == [
        "problems", "synthesize", "curate", "sft", "rl", "evaluate",
    ]  # fmt: skip
    assert [each.stage for each in ask(project, "sft@first").rebuild] == ["sft", "rl", "evaluate"]


def test_a_stage_that_has_moved_on_to_other_data_needs_no_rebuild(project):
    (project.root / "data/other").mkdir()
    (project.root / "data/other/kept.json").write_text("{}")
    (project.root / "data/other/policy").write_text("weights 2")
    project.artifact("kept2", "completions", "data/other/kept.json", producer="curate")
    project.artifact("policy2", "checkpoint", "data/other/policy", producer="sft")
    project.ledger.append_run(Run("second", "gsm8k", 20.0), process="elsewhere 1 x")
    project.stage("second", "curate", ["completions"], ["kept2"])
    project.stage("second", "sft", ["kept2", "base"], ["policy2"])
    old = ask(project, project.digest("kept"))
    # rl and evaluate still stand on the old policy; curate and sft do not any more.
    assert [each.stage for each in old.rebuild] == ["rl", "evaluate"]
    assert "policy" in names(project, old)


def test_two_recipes_are_planned_apart(project):
    project.ledger.append_run(Run("second", "arith", 20.0), process="elsewhere 1 x")
    project.stage("second", "sft", ["kept", "base"], ["policy"], status="cached")
    found = ask(project, "data/base")
    assert [(each.recipe, each.stage) for each in found.rebuild] == [
        ("arith", "sft"), ("gsm8k", "sft"), ("gsm8k", "rl"), ("gsm8k", "evaluate"),
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["v1", "data/curate/dropped.parquet"])
def test_nothing_depends_on_an_end(project, name):
    assert ask(project, name).affected == ()
