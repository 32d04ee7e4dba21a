"""What lies above, below and between nodes of a graph that is known by hand."""

import random
from dataclasses import replace

import pytest

from posttrain.provenance.ledger import ArtifactRecord, Run, StageRun, open_ledger
from posttrain.provenance.lineage import queries, walk
from posttrain.provenance.lineage.names import find_node
from posttrain.stage.errors import UserError


def ask(project, question, *names, **options):
    nodes = [find_node(project.ledger, name, root=project.root, cwd=project.root) for name in names]
    return question(project.ledger, *nodes, **options)


def shape(project, graph):
    """Stages by name and artifacts by their name in the project."""
    named = {record.digest: name for name, record in project.records.items()}
    return {
        named[node.facts["digest"]] if node.kind == "artifact" else node.name
        for node in graph.nodes.values()
    }


def edges(project, graph):
    named = {record.digest: name for name, record in project.records.items()}
    names = {
        node.id: named[node.facts["digest"]] if node.kind == "artifact" else f"@{node.name}"
        for node in graph.nodes.values()
    }
    return {(names[edge.source], names[edge.target]) for edge in graph.edges}


def test_up_from_an_artifact_leaves_out_what_it_was_not_made_from(project):
    graph = ask(project, queries.up, "data/curate/kept.parquet")
    assert edges(project, graph) == {
        ("raw", "@problems"), ("@problems", "problems"),
        ("problems", "@synthesize"), ("@synthesize", "completions"),
        ("completions", "@curate"), ("@curate", "kept"),
    }  # fmt: skip
    assert graph.root == f"completions:{project.digest('kept')}"


def test_down_ends_in_the_release(project):
    graph = ask(project, queries.down, "data/sft/policy")
    assert edges(project, graph) == {
        ("policy", "@rl"), ("@rl", "tuned"), ("@rl", "rollouts"), ("tuned", "@evaluate"),
        ("@evaluate", "report"), ("tuned", "@v1"), ("report", "@v1"),
    }  # fmt: skip


def test_a_stage_run_is_asked_with_all_that_it_read_or_made(project):
    above = ask(project, queries.up, "sft@first")
    assert {("kept", "@sft"), ("base", "@sft")} <= edges(project, above)
    assert "policy" not in shape(project, above)
    below = ask(project, queries.down, "curate@first")
    assert {("@curate", "kept"), ("@curate", "dropped")} <= edges(project, below)
    assert "completions" not in shape(project, below)


def test_a_release_is_made_from_everything_that_led_to_it(project):
    graph = ask(project, queries.up, "v1")
    assert graph.root == "release:v1"
    assert shape(project, graph) == {
        "v1", "tuned", "report", "policy", "kept", "completions", "problems", "raw", "base",
        "evaluate", "rl", "sft", "curate", "synthesize",
    }  # fmt: skip


def test_between_is_the_same_in_both_directions_and_holds_every_way(project):
    one = ask(project, queries.between, "data/problems/problems.parquet", "data/rl/tuned")
    other = ask(project, queries.between, "data/rl/tuned", "data/problems/problems.parquet")
    assert edges(project, one) == edges(project, other)
    assert edges(project, one) == {
        ("problems", "@rl"), ("problems", "@synthesize"), ("@synthesize", "completions"),
        ("completions", "@curate"), ("@curate", "kept"), ("kept", "@sft"), ("@sft", "policy"),
        ("policy", "@rl"), ("@rl", "tuned"),
    }  # fmt: skip


def test_between_a_stage_and_its_neighbors(project):
    assert edges(project, ask(project, queries.between, "rl@first", "data/rl/tuned")) == {
        ("@rl", "tuned")
    }
    assert edges(project, ask(project, queries.between, "rl@first", "v1")) == {
        ("@rl", "tuned"), ("tuned", "@evaluate"), ("@evaluate", "report"),
        ("tuned", "@v1"), ("report", "@v1"),
    }  # fmt: skip


def test_nothing_between_two_branches_is_said(project):
    with pytest.raises(UserError, match="nothing leads from .* in either direction"):
        ask(project, queries.between, "data/base", "data/curate/dropped.parquet")


def test_a_limit_keeps_the_nearest_and_counts_the_rest(project):
    graph = ask(project, queries.up, "data/rl/tuned", limit=3)
    # tuned; then policy and problems, which rl read
    assert shape(project, graph) >= {"tuned", "policy", "problems", "rl"}
    assert "kept" not in shape(project, graph)
    assert graph.omitted == 4  # kept, base, completions, raw
    assert ask(project, queries.up, "data/rl/tuned", limit=None).omitted == 0


def test_depth_counts_stage_runs(project):
    graph = ask(project, queries.up, "data/rl/tuned").within(1)
    assert edges(project, graph) == {("policy", "@rl"), ("problems", "@rl"), ("@rl", "tuned")}
    assert graph.omitted == 4


def test_failed_runs_and_repeats_do_not_appear_twice(project):
    project.stage("second", "sft", ["kept", "base"], ["policy"], status="cached")
    project.stage("third", "sft", ["kept", "base"], [], status="failed", id="failed")
    project.stage("fourth", "sft", ["kept", "base"], ["policy"], key="newer code", ended=90.0)
    graph = ask(project, queries.up, "data/sft/policy")
    assert [node.title for node in graph.nodes.values() if node.name == "sft"] == ["sft@fourth"]
    assert "failed" not in ask(project, queries.down, "data/base").nodes


def test_a_reused_stage_run_is_shown_as_the_execution_that_it_repeats(project):
    project.ledger.append_run(Run("second", "gsm8k", 20.0), process="elsewhere 1 x")
    project.stage("second", "sft", ["kept", "base"], ["policy"], status="cached", ended=99.0)
    for name in ("sft@latest", "sft@second", "second-sft"):
        graph = ask(project, queries.up, name)
        assert graph.nodes[graph.root].title == "sft@first"
    # The same holds where the record of the reuse says more of its inputs than the first one did.
    known = project.records["kept"]
    project.records["kept"] = replace(known, rows=None)
    project.stage("second", "sft", ["kept", "base"], ["policy"], status="cached", id="odd")
    graph = ask(project, queries.down, "odd")
    assert graph.nodes[graph.root].title == "sft@first"


def test_a_filter_that_drops_nothing_makes_a_circle_and_the_walk_ends(project):
    project.stage("second", "noop", ["kept"], ["kept"])
    graph = ask(project, queries.up, "data/curate/kept.parquet")
    assert {("kept", "@noop"), ("@noop", "kept"), ("@curate", "kept")} <= edges(project, graph)
    assert ask(project, queries.down, "data/curate/kept.parquet").nodes


def test_walks_equal_a_plain_search_on_random_graphs(tmp_path):
    for seed in range(5):
        chance = random.Random(seed)
        with open_ledger(tmp_path / f"{seed}.db") as ledger:
            above, below = _random_graph(ledger, chance)
            numbers = dict(ledger.store.query("SELECT num,digest FROM artifacts"))
            for number, digest in numbers.items():
                found = walk.ancestors(ledger.store, [number])
                assert {numbers[each] for each in found} == _reach(above, digest)
                assert found[0] == number
                assert len(found) == len(set(found))
                found = walk.descendants(ledger.store, [number])
                assert {numbers[each] for each in found} == _reach(below, digest)


def _random_graph(ledger, chance):
    above = {f"{i:02x}": set() for i in range(40)}
    below = {f"{i:02x}": set() for i in range(40)}

    def artifact(digest):
        return ArtifactRecord("port", "completions", f"data/{digest}", digest, 1)

    runs = []
    for number in range(30):
        inputs = [f"{chance.randrange(40):02x}" for _ in range(chance.randrange(4))]
        outputs = [f"{chance.randrange(40):02x}" for _ in range(chance.randrange(3))]
        for made in outputs:
            above[made].update(inputs)
        for read in inputs:
            below[read].update(outputs)
        runs.append(
            StageRun(
                str(number), "r", f"s{number}", "t", f"k{number}", "succeeded", 0.0, 1.0,
                inputs=tuple(map(artifact, inputs)), outputs=tuple(map(artifact, outputs)),
            )
        )  # fmt: skip
    ledger.record(*runs)
    return above, below


def _reach(neighbors, start):
    seen, stack = {start}, [start]
    while stack:
        for other in neighbors[stack.pop()] - seen:
            seen.add(other)
            stack.append(other)
    return seen


def test_the_maker_is_a_run_that_ended_before_its_reader_began(project):
    """Of equal executions the newest one that a reader could have read from; else the newest."""
    project.stage("early", "sft", ["base", "kept"], ["policy"], started=20.0, ended=30.0)
    project.stage(
        "reading", "rl", ["policy", "problems"], ["rollouts", "tuned"], started=40.0, ended=50.0
    )
    # Two more, one of them under another key, after what was read.
    project.stage("late", "sft", ["base", "kept"], ["policy"], started=60.0, ended=70.0)
    project.stage(
        "later", "sft", ["base", "kept"], ["policy"], started=80.0, ended=90.0, key="ab" * 32
    )
    graph = ask(project, queries.up, "data/rl/tuned")
    stages = {node.name: node.facts["run"] for node in graph.nodes.values() if node.kind == "stage"}
    assert stages["rl"] == "reading"
    assert stages["sft"] == "early"
    made = ask(project, queries.up, "data/sft/policy")
    assert "later" in {node.facts.get("run") for node in made.nodes.values()}
