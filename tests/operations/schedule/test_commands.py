"""`posttrain schedule ...` without any server: what is declared, refused and shown."""

import re
import time

import pytest
from click.testing import CliRunner
from ruamel.yaml import YAML

from posttrain.cli.schedule import schedule
from posttrain.operations.schedule.journal import journal_location, open_journal
from posttrain.stage.errors import UserError

ADD = ("add", ".", "--cron", "0 2 * * *")


@pytest.fixture
def run(project, quiet, monkeypatch):
    """Run a command in the project; its output, or the sentence of a refusal."""
    monkeypatch.chdir(project.root)

    def call(*arguments):
        done = CliRunner().invoke(schedule, arguments, catch_exceptions=True)
        if isinstance(done.exception, UserError):
            return f"error: {done.exception}"
        assert done.exit_code == 0, (done.output, done.exception)
        return done.output

    return call


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--cron", "0 2 * *"), "--cron takes five fields"),
        (("--cron", "61 2 * * *"), "--cron '61 2 * * *' is no time: Bad minute"),
        (("--cron", "0 0 30 2 *"), "--cron '0 0 30 2 *' is no time"),
        (("--timezone", "Europe/Berlim"), "there is no timezone 'Europe/Berlim'"),
        (("--on-missed", "all"), "--on-missed takes skip, latest or backfill:N, got 'all'"),
        (("--on-missed", "backfill:0"), "--on-missed takes skip, latest or backfill:N"),
        (("--concurrency", "2:queue"), "--concurrency takes 1:queue or 1:cancel-new"),
        (("--name", "Mine!"), "the name of a schedule is small letters"),
        (("--watch", "fiel:a"), "there is no kind 'fiel'; did you mean 'file'?"),
        (("--set", "frist.amount=1"), "unknown section 'frist'"),
    ],
)
def test_nonsense_is_refused_in_one_sentence_and_nothing_is_written(
    run, project, options, sentence
):
    said = run(*ADD, *options)
    assert said.startswith("error: ")
    assert sentence in said
    assert not (project.root / "prefect.yaml").exists()
    assert not (project.root / ".posttrain/schedules.db").exists()


def test_a_schedule_is_declared_shown_paused_and_removed(run, project):
    told = run(*ADD, "--name", "nightly", "--timezone", "Europe/Berlin")
    assert re.search(r"nightly: next \d{4}-\d\d-\d\d 02:00 Europe/Berlin", told)
    assert "posttrain up" in told
    assert "there is a schedule 'nightly' already" in run(*ADD, "--name", "nightly")
    run(*ADD, "--name", "nightly", "--replace", "--on-missed", "backfill:3")
    assert "backfill:3" in run("list")
    (deployment,) = YAML(typ="safe").load((project.root / "prefect.yaml").read_text())[
        "deployments"
    ]
    assert deployment["entrypoint"] == "posttrain.operations.schedule.flow.scheduled"
    assert deployment["schedules"] == [{"cron": "0 2 * * *", "timezone": "UTC", "active": True}]
    assert deployment["tags"] == ["recipe:chain", "schedule:nightly"]
    assert run("next", "nightly", "-n", "3").count(" 02:00 UTC  nightly") == 3
    run("pause", "nightly")
    assert "paused" in run("list")
    assert run("next", "nightly") == ""
    assert "active: false" in (project.root / "prefect.yaml").read_text()
    assert "nightly: next " in run("resume", "nightly")
    run("run-now", "nightly")
    assert "asked for with run-now" in run("history", "nightly")
    run("remove", "nightly")
    assert "there is no schedule 'nightly'" in run("pause", "nightly")
    assert "asked for with run-now" in run("history")


def test_what_is_declared_starts_now_and_a_change_does_not_reach_back(run, project):
    begun = time.time()
    run(*ADD)
    with open_journal(journal_location(project.root)) as journal:
        assert journal.schedule("chain").since >= begun


def test_a_recipe_that_is_not_committed_is_refused(run, project):
    project.toy.write("recipes/new/recipe.yaml", f"flow: {project.toy.flow}\n")
    said = run("add", "recipes/new", "--cron", "0 2 * * *")
    assert "recipes/new/recipe.yaml is not in git" in said
