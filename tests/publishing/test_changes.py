"""What changed between two states: problems paired, and what cannot be."""

from dataclasses import replace

import pytest

import posttrain as pt
from posttrain.provenance.ledger import (
    ArtifactRecord,
    Run,
    StageRun,
    open_ledger,
)
from posttrain.publishing import changes
from posttrain.publishing.changes import RecipeState, changes_between, is_run, run_before
from posttrain.stage.errors import UserError

MADE = tuple(
    ArtifactRecord(role, kind, f"data/evaluate/{role}", "a" * 64, 1)
    for role, kind in (("report", "report"), ("completions", "completions"))
)
READ = tuple(ArtifactRecord(role, "any", "p", "b" * 64, 1) for role in ("problems", "policies.rl"))
BEFORE = StageRun(
    id="1", run_id="r", stage="evaluate", task="tasks.evaluate", key="k", status="succeeded",
    started=0.0, ended=1.0, inputs=READ, outputs=MADE, metrics={"evaluate/rl/pass_at_1": 0.0},
    components={"params": {"temperature": "1.0"}},
)  # fmt: skip
AFTER = replace(
    BEFORE,
    id="2",
    key="l",
    outputs=tuple(replace(each, digest="c" * 64) for each in MADE),
    metrics={"evaluate/rl/pass_at_1": 1.0},
)
COUNTS = {"1": {f"p{n}": (0, 2) for n in range(20)}, "2": {f"p{n}": (2, 2) for n in range(20)}}


def compared(monkeypatch, after=AFTER, counts=COUNTS):
    monkeypatch.setattr(changes, "counts_of", lambda run, _name, _finder: counts[run.id])
    states = [RecipeState("", "", {"evaluate": run}) for run in (BEFORE, after)]
    return changes_between(*states, finder=None)


def test_problems_are_paired_and_the_interval_holds_at_their_number(monkeypatch):
    """Twenty differences of 1: the lower end is -1 + 2 times 0.025 ** (1 / 20) = 0.6632."""
    (moved,) = compared(monkeypatch).metrics
    assert (moved.name, moved.before, moved.after, moved.paired) == ("rl/pass_at_1", 0.0, 1.0, 20)
    assert moved.low == pytest.approx(0.6632, abs=1e-4)
    assert moved.high == pytest.approx(1.0)
    assert moved.direction == "up"


def test_other_problems_are_not_paired(monkeypatch):
    fewer = {**COUNTS, "2": {"p1": (2, 2)}}
    (moved,) = compared(monkeypatch, counts=fewer).metrics
    assert (moved.paired, moved.difference, moved.direction) == (None, 1.0, "")


def test_what_was_measured_otherwise_is_said_not_to_be_paired(monkeypatch):
    hotter = replace(AFTER, components={"params": {"temperature": "2.0"}})
    change = compared(monkeypatch, hotter)
    assert change.metrics[0].paired is None
    assert change.remarks == [
        "evaluate: not paired by problem: the two were evaluated with other params"
    ]


def test_samples_that_are_not_here_cost_only_the_pairing(monkeypatch):
    def gone(*_):
        raise UserError("completions are in neither the workspace nor the cache")

    monkeypatch.setattr(changes, "counts_of", gone)
    states = [RecipeState("", "", {"evaluate": run}) for run in (BEFORE, AFTER)]
    change = changes_between(*states, finder=None)
    assert "in neither the workspace" in change.remarks[0]
    assert change.metrics[0].difference == 1.0


def test_stages_that_came_and_went_are_said(monkeypatch):
    one, other = RecipeState("", "", {"a": BEFORE}), RecipeState("", "", {"b": AFTER})
    assert changes_between(one, other, finder=None).causes == [
        ("b", "new stage"),
        ("a", "no longer there"),
    ]


def test_the_run_before_is_of_the_same_recipe_and_ended_well(tmp_path):
    with open_ledger(tmp_path / "ledger.db") as ledger:
        for name, recipe, status in (
            ("1", "mine", "succeeded"), ("2", "mine", "failed"), ("3", "other", "succeeded"),
            ("4", "mine", "succeeded"),
        ):  # fmt: skip
            ledger.append_run(
                Run(name, recipe, started=float(name), ended=9.0, status=status), process="h 1 b"
            )
        assert run_before(ledger, ledger.run("4")).id == "1"
        assert run_before(ledger, ledger.run("1")) is None


@pytest.mark.parametrize(
    ("name", "known"),
    [("latest", True), ("latest~3", True), ("20261128-18", True), ("20261128-181734-3d1d03", True),
     ("main", False), ("latest-fix", False), ("c2ee3bca", False)],
)  # fmt: skip
def test_a_run_is_told_from_a_branch_by_its_name(name, known):
    assert is_run(name) == known


def test_runs_of_a_project_are_compared_by_problem(tmp_path, monkeypatch):
    monkeypatch.setattr(changes, "counts_of", lambda run, *_: COUNTS[run.id])
    (tmp_path / ".dvc").mkdir()
    place = tmp_path / ".posttrain/ledger.db"
    place.parent.mkdir()
    with open_ledger(place) as ledger:
        for run, stage in (("1", BEFORE), ("2", AFTER)):
            ledger.append_run(Run(run, "mine", float(run)), process="elsewhere 1 x")
            ledger.record(replace(stage, run_id=run))
    found = pt.compare("1", "2", project=tmp_path)
    assert [each.paired for each in found.paired] == [20]
    said = "evaluate: rl/pass_at_1 +1 [+0.663, +1.000], paired over 20 problems"
    assert said in repr(found).splitlines()
