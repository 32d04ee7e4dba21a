"""Schedules in the page: what was declared, what was due, what became of it, and its log."""

import re

import pytest
from starlette.testclient import TestClient

from posttrain.cli.page.app import create_app
from posttrain.cli.page.project import Project
from posttrain.operations.schedule.notes import open_notes
from posttrain.operations.schedule.recipes import Schedule, ScheduleConfig
from posttrain.provenance.ledger import open_ledger

NOON = 1_700_000_000.0
# 2023-11-14 22:13:20 in UTC.


@pytest.fixture
def client(tmp_path):
    (tmp_path / ".dvc").mkdir()
    ledger = tmp_path / ".posttrain/ledger.db"
    open_ledger(ledger).close()
    log = tmp_path / ".posttrain/services/runs/nightly.log"
    log.parent.mkdir(parents=True)
    log.write_text("step 1 of 2\nno space left\n")
    config = ScheduleConfig(cron="0 2 * * *", timezone="UTC", missed="skip")
    told = Schedule("nightly", ".", "mine: nightly", config).as_text()
    with open_notes(tmp_path) as notes:
        notes.add("nightly", 0.0, "declared", "0 2 * * *", declaration=told)
        notes.add("nightly", NOON, "waiting", "its time has come")
        (tick,) = notes.live()
        begun = type(tick)(**{**vars(tick), "attempt": 1})
        notes.about(begun, "running", "", claim="begins", log=str(log))
        notes.about(notes.tick("nightly", NOON), "failed", "stage rl failed", claim="!")
        notes.add("paused", 0.0, "declared", "", declaration=told.replace('"nightly"', '"paused"'))
        notes.add("paused", 0.0, "paused", "paused by hand")
    return TestClient(create_app(Project(tmp_path, str(ledger))), base_url="http://127.0.0.1")


def told_by(client, address):
    page = re.sub(r"<[^>]+>", " ", client.get(address).text)
    return " ".join(page.split())


def test_what_was_due_is_told_with_its_story_and_its_log(client):
    told = told_by(client, "/schedules")
    assert re.search(r"nightly \. 0 2 \* \* \* UTC skip \d{4}-\d\d-\d\d 02:00 UTC", told)
    assert "paused . 0 2 * * * UTC skip paused" in told
    assert "2023-11-14 22:13 nightly failed" in told
    assert "attempt 1 starts" in told
    assert "failed: stage rl failed" in told
    log = (
        client.get("/schedules").text.partition('href="/schedules/nightly/log')[2].partition('"')[0]
    )
    assert "step 1 of 2 no space left" in told_by(client, f"/schedules/nightly/log{log}")


def test_only_a_log_that_the_notes_name_is_read(client):
    assert "name no log of that moment" in told_by(client, "/schedules/nightly/log?due=1.0")
    assert "name no log of that moment" in told_by(client, f"/schedules/other/log?due={NOON}")
