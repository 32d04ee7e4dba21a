"""`posttrain status` and `posttrain plan`: all of it fits a terminal of eighty columns."""

import pytest
from click.testing import CliRunner

from posttrain.cli.plan import plan
from posttrain.cli.status import status
from posttrain.pipeline.execution.failures import StageFailed


def lines_of(verb, toy):
    """What the verb prints, in this process, where a console has eighty columns."""
    done = CliRunner().invoke(verb, [str(toy.root)], catch_exceptions=False)
    assert done.exit_code == 0
    return done.output.splitlines()


def test_before_the_first_run_nothing_is_claimed(toy):
    assert [line.strip() for line in lines_of(status, toy)][1:] == [
        "first never ran",
        "second never ran",
        "third never ran",
    ]
    assert lines_of(plan, toy)[-1] == "3 of 3 stages to run."


def test_a_stage_that_failed_is_not_one_that_never_ran(toy):
    with pytest.raises(StageFailed):
        toy.run("second.mood=fail")
    assert [line.strip() for line in lines_of(status, toy) if "second" in line] == ["second failed"]
    assert any(line.strip() == "third never ran" for line in lines_of(status, toy))
    (line,) = (line for line in lines_of(plan, toy) if line.split()[:1] == ["second"])
    assert line.endswith("its last attempt failed")


def test_artifacts_are_shown_whole_and_a_changed_stage_is_out_of_date(toy):
    made = toy.run()
    toy.recipe("second: {amount: 2}")
    lines = lines_of(status, toy)
    assert [line.split("  ")[0].strip() for line in lines[1:6:2]] == [
        "first up to date",
        "second out of date",
        "third behind its inputs",
    ]
    (result,) = made["first"].outputs
    assert lines[2].split() == ["data/first/result.json", "10", "B", result.digest[:12]]
    assert sum(line.startswith(made["first"].run_id) for line in lines) == 1
    assert max(map(len, lines)) <= 80


def test_the_runs_are_those_of_the_recipe(toy):
    ran = toy.run()["first"].run_id
    assert any(ran in line for line in lines_of(status, toy))
    other = toy.write("recipes/other/recipe.yaml", f"flow: {toy.flow}\nrun: {{threads: 1}}\n")
    done = CliRunner().invoke(status, [str(other.parent)], catch_exceptions=False)
    assert done.exit_code == 0
    assert ran not in done.output


def test_runs_are_asked_for_by_whose_they_are(toy, monkeypatch):
    monkeypatch.setenv("POSTTRAIN_ACTOR", "Ada <ada@example.org>")
    hers = toy.run()["first"].run_id
    monkeypatch.setenv("POSTTRAIN_ACTOR", "grace")
    other = toy.run("first.amount=2")["first"].run_id
    done = CliRunner().invoke(status, [str(toy.root), "--by", "EXAMPLE.org"])
    assert [each in done.output for each in (hers, other)] == [True, False]
    (line,) = (line for line in done.output.splitlines() if hers in line)
    assert line.split()[-3:] == ["succeeded", "Ada", "test"]
    # Whose it is decides no key.
    assert all(each.action == "cached" for each in toy.plan("first.amount=2").values())


def test_a_plan_counts_only_the_times_that_are_known(toy):
    toy.run()
    toy.recipe("first: {amount: 2}")
    assert lines_of(plan, toy)[-1].startswith("3 of 3 stages to run; last time they took ")


@pytest.mark.parametrize(
    ("release", "sentence"),
    [
        (
            "gates: [{kind: improvement, name: better, test: sign}]",
            "release: gate 'better': test: sign counts problems won and lost",
        ),
        ("gates: [{kind: improvement, name: better, seed: 3}]", "release.gates"),
        ("polcy: first.result", "release.polcy: unknown key"),
    ],
)
def test_a_plan_says_what_no_release_would_pass(toy, release, sentence):
    toy.recipe(f"release:\n  {release}\n")
    done = toy.cli("plan")
    assert done.returncode == 2
    assert sentence in done.stderr.replace("\n", " ")
