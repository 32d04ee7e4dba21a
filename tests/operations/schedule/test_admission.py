"""What is decided at the start of a run, in a project with a commit."""

import time
from types import SimpleNamespace

import pytest

from posttrain.operations.schedule import admission
from posttrain.operations.schedule.moved import fingerprint
from posttrain.operations.schedule.worktree import head, link_inputs, prepare


@pytest.fixture
def begin(desk, project):
    """Begin the run of an instant that just came, in a project whose inputs git has in part."""
    project.toy.write(".gitignore", ".posttrain/\n__pycache__/\ndata/\nbig.txt\n")
    project.toy.write("in.txt", "1")
    project.toy.write("big.txt", "1")
    project.commit()
    minutes = iter(range(1000))

    def run(name="s"):
        due = time.time() // 60 * 60 + next(minutes) / 1000
        flow_run = desk.server.add(name, due)
        assert flow_run in desk.cycle(flow_run)
        begun = admission.begin(desk.keeper, flow_run)
        if begun is None:
            desk.keeper.ended(flow_run, None, stopping=False)
        return begun, desk.notes.tick(name, due)

    def succeed(tick, *watched):
        """Note what a run froze, as its process does."""
        tree = prepare(desk.root, tick.schedule).root
        link_inputs(desk.root, tree, ".", watched)
        frozen = {"commit": head(desk.root), "overrides": [],
                  "watched": fingerprint(tree, watched)}  # fmt: skip
        desk.notes.about(tick, "succeeded", "done", frozen=frozen)

    return SimpleNamespace(run=run, succeed=succeed, project=project)


def test_what_moved_is_what_the_run_would_have(desk, begin):
    watched = ("file:big.txt", "file:in.txt")
    desk.given(desk.declare(only_if_moved=True, watch=watched))
    begun, tick = begin.run()
    assert (begun.place / "big.txt").read_text() == "1"
    begin.succeed(tick, *watched)
    # An edit that is not committed is in no run: it moves nothing.
    begin.project.toy.write("in.txt", "2")
    begun, tick = begin.run()
    assert (begun, tick.status) == (None, "unchanged")
    # A file that git does not have is the project's own.
    begin.project.toy.write("big.txt", "2")
    begun, tick = begin.run()
    assert begun is not None
    begin.succeed(tick, *watched)
    assert begin.run()[0] is None
    begin.project.commit()
    assert begin.run()[0] is not None


def test_a_recipe_that_is_no_yaml_is_one_sentence_and_the_other_schedule_goes_on(desk, begin):
    begin.project.toy.write("recipes/b/recipe.yaml", "flow: x\n")
    begin.project.commit()
    other = desk.declare("b")
    desk.given(desk.declare("a"), type(other)("b", "recipes/b", "b", other.config))
    begin.project.toy.write("recipe.yaml", "flow: [\n")
    begin.project.commit()
    begun, tick = begin.run("a")
    assert (begun, tick.status, tick.over) == (None, "failed", True)
    assert tick.reason.startswith("recipe.yaml of this commit is not valid YAML: ")
    assert begin.run("b")[0] is not None


def test_a_hub_that_is_away_is_tried_again_and_the_other_schedule_goes_on(desk, begin, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    item = "hf:datasets/owner/name@main"
    desk.given(desk.declare("a", only_if_moved=True, watch=(item,)), desk.declare("b"))
    first, tick = begin.run("a")
    frozen = {"commit": head(desk.root), "overrides": [], "watched": {item: "x"}}
    desk.notes.about(tick, "succeeded", "done", frozen=frozen)
    begun, tick = begin.run("a")
    assert (begun, tick.status) == (None, "waiting")
    assert "hf:datasets/owner/name@main: the hub does not answer" in tick.reason
    assert tick.reason.endswith("; again in 30 s")
    assert begin.run("b")[0] is not None


def test_names_that_differ_by_one_sign_share_nothing(desk, begin):
    desk.given(desk.declare("a_b"), desk.declare("a-b"))
    (one, _), (two, _) = begin.run("a_b"), begin.run("a-b")
    assert one.place != two.place
    assert one.environment["POSTTRAIN_TICK"] != two.environment["POSTTRAIN_TICK"]
    assert set(desk.server.made) == {"a_b", "a-b"}
