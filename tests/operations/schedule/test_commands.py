"""`posttrain schedule ...` without any server: what recipes declare, what is refused and shown."""

import re
import subprocess
import time

import pytest
from click.testing import CliRunner

from posttrain.cli.schedule import schedule
from posttrain.operations.schedule.notes import open_notes
from posttrain.stage.errors import UserError


@pytest.fixture
def run(project, quiet, monkeypatch):
    """Run a command in the project; its output, or the sentence of a refusal."""
    monkeypatch.chdir(project.root)

    def call(*arguments, code=0):
        done = CliRunner().invoke(schedule, arguments, catch_exceptions=True)
        if isinstance(done.exception, UserError):
            return f"error: {done.exception}"
        assert done.exit_code == code, (done.output, done.exception)
        return done.output

    return call


@pytest.mark.parametrize(
    ("declared", "sentence"),
    [
        ("{cron: '0 0 * * 5L'}", "recipe.yaml: schedules.bad.cron: '0 0 * * 5L' is no time"),
        ("{cron: '*/70 * * * *'}", "every 70th of 60"),
        ("{cron: '0 2 * * *', timezone: Europe/Berlim}", "there is no timezone 'Europe/Berlim'"),
        ("{cron: '0 2 * * *', missed: all}", "schedules.bad.missed"),
        ("{cron: '0 2 * * *', missed: 'backfill:0'}", "schedules.bad.missed"),
        ("{cron: '0 2 * * *', overlap: queue}", "schedules.bad.overlap"),
        ("{cron: '0 2 * * *', retry: 2}", "did you mean 'retries'?"),
        ("{cron: '0 2 * * *', watch: ['fiel:a']}", "there is no kind 'fiel'; did you mean 'file'?"),
        ("{cron: '0 2 * * *', notify_command: \"echo 'oops\"}", "no command that a shell would"),
        ("{timezone: UTC}", "schedules.bad.cron"),
    ],
)
def test_one_that_is_wrong_is_one_sentence_and_the_others_are_taken(
    run, project, declared, sentence
):
    project.toy.recipe(f"schedules: {{bad: {declared}, good: {{cron: '@daily'}}}}")
    project.commit()
    said = run("apply", code=2)
    assert "error: " in said
    assert sentence in said
    assert "good: declared (.)" in said
    with open_notes(project.root) as notes:
        assert set(notes.declarations()) == {"good"}


def test_a_recipe_that_is_no_mapping_takes_nothing_away(run, project):
    project.toy.recipe("schedules: {nightly: {cron: '@daily'}}")
    project.commit()
    assert "nightly: declared" in run("apply")
    for text in ("", "- flow\n", "words\n"):
        project.toy.write("recipe.yaml", text)
        project.commit()
        said = run("apply", code=2)
        assert "recipe.yaml of this commit: a recipe is a mapping of sections" in said
        assert "nightly: kept as it was" in said


def test_what_is_not_committed_is_not_applied_and_a_broken_recipe_takes_nothing_away(run, project):
    project.toy.recipe("schedules: {nightly: {cron: '0 2 * * *', timezone: Europe/Berlin}}")
    assert "nothing new" in run("apply")
    project.commit()
    assert "not applied yet: nightly; posttrain schedule apply" in run("list")
    told = run("apply")
    assert "nightly: declared (.)" in told
    assert "posttrain up" in told
    assert re.search(r"nightly +\. +0 2 \* \* \* Europe/Berlin +latest +\S+ 02:00", run("list"))
    project.toy.write("recipe.yaml", "flow: [\n")
    project.commit()
    said = run("apply", code=2)
    assert "recipe.yaml of this commit is not valid YAML" in said
    assert "nightly: kept as it was, until every recipe can be read" in said
    project.toy.recipe("")
    project.commit()
    assert "nightly: removed" in run("apply")
    assert "there is no schedule 'nightly'" in run("pause", "nightly")


def test_before_the_first_commit_nothing_is_applied_and_nothing_taken_away(run, project):
    project.toy.recipe("schedules: {nightly: {cron: '0 2 * * *'}}")
    project.commit()
    run("apply")
    subprocess.run(["git", "update-ref", "-d", "HEAD"], cwd=project.root, check=True)
    said = run("apply", code=2)
    assert "error: no recipe is committed yet, and schedules are read from the commit" in said
    assert "nothing new" not in said
    with open_notes(project.root) as notes:
        assert set(notes.declarations()) == {"nightly"}


def test_a_change_beside_the_clock_keeps_what_was_due(run, project):
    def since(text):
        project.toy.recipe(f"schedules: {{s: {text}}}")
        project.commit()
        run("apply")
        with open_notes(project.root) as notes:
            return notes.declarations()["s"].since

    first = since("{cron: '0 2 * * *'}")
    assert since("{cron: '0 2 * * *', retries: 5, notify_command: cat}") == first
    assert since("{cron: '0 3 * * *', retries: 5}") > first


def test_two_recipes_with_one_name(run, project):
    project.toy.recipe("schedules: {s: {cron: '@daily'}}")
    project.toy.write("recipes/b/recipe.yaml", "flow: x.y\nschedules: {s: {cron: '@hourly'}}\n")
    project.commit()
    said = run("apply", code=2)
    assert "recipes/b/recipe.yaml: schedules.s: . declares 's' too; rename one" in said
    assert "s: declared (.)" in said


def test_paused_resumed_asked_for_and_cancelled(run, project):
    project.toy.recipe("schedules: {nightly: {cron: '0 2 * * *'}}")
    project.commit()
    run("apply")
    run("pause", "nightly")
    assert "paused" in run("list")
    assert run("next", "nightly") == "Nothing runs next: every schedule is paused.\n"
    assert "nightly: next " in run("resume", "nightly")
    assert run("next", "nightly", "-n", "3").count(" 02:00 UTC  nightly") == 3
    said = run("run", "nightly")
    assert "nightly: asked for; it waits for a worker\nno worker is up here" in said
    assert "within seconds" not in said
    assert "asked for by hand" in run("history", "nightly")
    assert "nightly: 1 cancelled" in run("cancel", "nightly")
    assert "cancelled by hand" in run("history", "nightly")
    assert "nightly: nothing runs or waits" in run("cancel", "nightly")
    assert "there is no schedule 'nihgtly'; did you mean 'nightly'?" in run("cancel", "nihgtly")


def test_a_run_asked_for_under_a_pause_or_with_a_worker_says_what_comes(run, project, monkeypatch):
    project.toy.recipe("schedules: {nightly: {cron: '0 2 * * *'}}")
    project.commit()
    run("apply")
    monkeypatch.setattr("posttrain.operations.services.process.alive", lambda *_: 7)
    assert run("run", "nightly") == "nightly: asked for; the worker takes it up within seconds\n"
    run("pause", "nightly")
    said = run("run", "nightly")
    assert said == (
        "nightly: asked for; it is paused, and starts after: posttrain schedule resume nightly\n"
    )


def test_what_is_declared_starts_now(run, project):
    begun = time.time()
    project.toy.recipe("schedules: {s: {cron: '* * * * *'}}")
    project.commit()
    run("apply")
    with open_notes(project.root) as notes:
        assert notes.declarations()["s"].since >= begun
