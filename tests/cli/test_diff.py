"""`posttrain diff`: runs, branches and the workspace side by side, for people and for a comment."""

import json
import subprocess

import pytest

from posttrain.cli.diff_shown import in_markdown_of
from posttrain.publishing.release.gates.base import Gate, GateResult
from posttrain.views.report.changes import MetricChange, RunChange

PAIRED = MetricChange("evaluate", "rl/pass_at_1", 0.5, 0.25, -0.3, -0.2, 512)
CHANGE = RunChange(
    before="branch main at 0123abcd",
    after="the workspace",
    causes=[("rl", "parameter a|b changed from 1 to 2")],
    metrics=[PAIRED, MetricChange("rl", "loss", 1.0, None), MetricChange("rl", "kl", 1.0, 3.0)],
    equal=2,
    remarks=["evaluate: not paired by problem: the two were evaluated with other params"],
)
GATES = [
    (Gate(name="solves"), GateResult(True, "at least 0.2", {"low": 0.22})),
    (Gate(name="better"), GateResult(False, "exceeds 0", {"low": -0.3}, "train longer")),
]


def git(toy, *arguments):
    settings = ["-c", "user.name=a", "-c", "user.email=a@b"]
    return subprocess.run(
        ["git", *settings, *arguments], cwd=toy.root, check=True, capture_output=True, text=True
    ).stdout


def test_two_runs_are_compared_and_the_second_is_the_last(toy, posttrain):
    toy.run()
    toy.recipe("second: {amount: 5}")
    toy.run()
    done = posttrain("diff", "latest~1", "latest", "--json")
    told = json.loads(done.out)
    # second adds 5 in place of 1, and third 1 to it: 2 -> 6 and 3 -> 7.
    assert [(each["stage"], each["before"], each["after"]) for each in told["metrics"]] == [
        ("second", 2.0, 6.0),
        ("third", 3.0, 7.0),
    ]
    assert told["causes"][0] == ["second", "parameter amount changed from 1 to 5"]
    assert (told["equal"], told["gates"], done.code) == (1, [], 0)
    shown = posttrain("diff", "latest~1", "latest")
    assert shown.out.splitlines()[-1] == "2 of 3 stages differ."
    assert posttrain("diff", "latest").out.splitlines()[-1] == "0 of 3 stages differ."


def test_a_run_of_one_stage_is_compared_by_that_stage(toy, posttrain):
    toy.run()
    assert posttrain("run", "--local", "--only", "second", "--set", "second.amount=5").code == 0
    told = json.loads(posttrain("diff", "latest~1", "latest", "--json").out)
    assert (told["causes"], told["equal"]) == (
        [["second", "parameter amount changed from 1 to 5"]],
        0,
    )
    (remark,) = told["remarks"]
    assert remark.endswith(" did not run 2 stages: first, third")
    back = posttrain("diff", "latest", "latest~1").out.splitlines()
    assert back[-1] == "1 of 1 stage differ."


def test_a_branch_is_what_its_lock_says_also_where_no_ledger_knows_it(toy, posttrain):
    toy.run()
    git(toy, "add", ".")
    git(toy, "commit", "-qm", "first")
    git(toy, "branch", "base")
    toy.recipe("third: {amount: 3}")
    toy.run()
    (toy.root / ".posttrain/ledger.db").unlink()
    done = posttrain("diff", "base", "--markdown")
    assert done.code == 0
    assert "**1 of 3 stages differ.**" in done.out
    assert "| third | sum | 3 | 5 | +2 |" in done.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing"], "'nothing' is no run, no release and no branch, tag or commit here"),
        (["latest~7"], "there is no run 'latest~7'; the ledger's number of runs is 1"),
        (["HEAD"], "HEAD"),
    ],
)
def test_what_is_not_there_is_said_in_a_sentence(toy, posttrain, arguments, said):
    toy.run()
    git(toy, "add", "recipe.yaml")
    git(toy, "commit", "-qm", "without a lock")
    done = posttrain("diff", *arguments)
    assert done.code == 2
    assert done.sentence.startswith(said)


def test_a_comment_has_gates_figures_and_causes_and_quotes_what_is_quoted():
    lines = in_markdown_of(CHANGE, GATES).splitlines()
    assert lines[0] == "**1 of 3 stages differ; 1 of 2 gates fail: better.**"
    assert lines[2] == "branch main at 0123abcd → the workspace"
    assert "| solves | holds | low 0.22 | at least 0.2 |" in lines
    assert "| better | FAILS | low -0.3 | exceeds 0 |" in lines
    paired = r"-0.25 \[-0.300, -0.200\], paired over 512 problems"
    assert f"| evaluate | rl/pass_at_1 | 0.5 | 0.25 | {paired} |" in lines
    assert "| rl | loss | 1 |  | only in the run before |" in lines
    assert r"| rl | parameter a\|b changed from 1 to 2 |" in lines
    assert any("not paired by problem" in line for line in lines)


def test_many_figures_are_folded():
    many = [MetricChange("rl", f"m{place}", 0.0, 1.0) for place in range(20)]
    text = in_markdown_of(RunChange("a", "b", [], many, 3))
    # Twelve stand open.
    assert text.index("| rl | m11 |") < text.index("<details><summary>8 more figures</summary>")
    assert text.index("| rl | m12 |") > text.index("<details>")


def test_a_difference_is_told_by_its_interval():
    assert (PAIRED.direction, MetricChange("a", "b", 0.1, 0.2, -0.1, 0.3, 9).direction) == (
        "down",
        "",
    )
    assert MetricChange("a", "b", None, 0.2).moved == "new"
