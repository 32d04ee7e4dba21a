"""A day of schedules in some minutes, while processes are killed at random: 0 lost, 0 doubled."""

import os
import random
import signal
import time
from collections import Counter
from dataclasses import replace

import pytest

from posttrain.operations.schedule.times import ticks_between
from posttrain.provenance.ledger import open_ledger
from posttrain.provenance.ledger.processes import is_gone

HOUR = 3600.0
NAMES = ("north", "east", "south", "west")


def declare(services, begun):
    """Four schedules, hourly, declared a day ago, while nobody was there to run them."""
    for name in NAMES:
        services.schedule(
            "add", ".", "--name", name, "--cron", "0 * * * *", "--on-missed", "backfill:99",
            "--retries", "9", "--retry-seconds", "0.5", "--set", f"first.label={name}",
        )  # fmt: skip
    with services.journal() as journal:
        for schedule in journal.schedules():
            journal.put(replace(schedule, since=begun))


def kill_something(services, journal, rng):
    """End a worker, a run or once in a while the Prefect server, without a warning."""
    runs = [tick.process for tick in journal.live() if tick.status == "running" and tick.process]
    victims = [int(text.split(" ")[1]) for text in runs if not is_gone(text)]
    what = rng.choices(["worker", "run", "prefect"], [4, 8, 1])[0]
    pid = rng.choice(victims or [None]) if what == "run" else services.pid(what)
    if pid is None:
        return None
    os.kill(pid, signal.SIGKILL)
    return what


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_hundred_runs_with_random_kills(services, monkeypatch):
    monkeypatch.setenv("POSTTRAIN_TRACKING", "off")
    up = services()
    begun = (time.time() - 24 * HOUR) // HOUR * HOUR + 1
    declare(up, begun)
    up.up()
    for name in NAMES:
        up.schedule("run-now", name)
    rng, killed = random.Random(7), Counter()
    deadline = time.monotonic() + 600
    with up.journal() as journal:
        declared = journal.schedules()

        def all_settled():
            rows = journal.history()
            return len(rows) >= 100 and not journal.live()

        # By what was done, not by the clock: a slow machine is not killed out of all progress.
        coming = 2
        while not all_settled() and time.monotonic() < deadline:
            time.sleep(0.3)
            done = sum(row.status == "succeeded" for row in journal.history())
            if done >= coming and (what := kill_something(up, journal, rng)):
                killed[what] += 1
                coming = done + rng.randint(3, 9)
        rows = journal.history()
        stories = {row.num: journal.story(row) for row in rows}
    assert killed.total() >= 8
    assert killed["run"] >= 2
    assert sum(row.attempt > 1 for row in rows) >= 1
    # None lost: every instant of the day has its row, and nothing else has one.
    now = time.time() - 120
    for schedule in declared:
        wanted = set(ticks_between(schedule, begun, now))
        assert len(wanted) == 24
        mine = {row.due for row in rows if row.schedule == schedule.name and row.kind != "manual"}
        assert wanted <= mine
    assert Counter(row.schedule for row in rows if row.kind == "manual") == dict.fromkeys(NAMES, 1)
    assert [row for row in rows if row.status != "succeeded"] == []
    # None doubled: one end for each, and as many beginnings as attempts; each end is explained.
    for row in rows:
        said = [text for _, text in stories[row.num]]
        assert sum(text.startswith("succeeded: ") for text in said) == 1, said
        assert said[-1].startswith("succeeded: "), said
        assert row.reason in said[-1]
        crashes = sum(text.startswith(("crashed: ", "failed: ")) for text in said)
        assert sum(" starts" in text for text in said) == crashes + 1 == row.attempt, said
    with open_ledger(up.root / ".posttrain/ledger.db") as ledger:
        executed = Counter(
            run.key
            for run in ledger.every_stage_run()
            if run.status == "succeeded" and run.stage == "first"
        )
    # A stage that succeeded once was not executed again, kills or not.
    assert sorted(executed.values()) == [1, 1, 1, 1]
    # Prefect says the same: one flow run for each tick, and that one is completed.
    flow_runs = up.prefect("/flow_runs/filter", {"flow_runs": {"id": {"any_": [
        row.flow_run_id for row in rows]}}})  # fmt: skip
    assert {run["state_type"] for run in flow_runs} == {"COMPLETED"}
    assert len({row.flow_run_id for row in rows}) == len(rows) >= 100
    shown = up.schedule("history", "-n", "200").stdout
    assert shown.count("succeeded") >= 100
    print(killed, len(rows), f"{sum(row.attempt > 1 for row in rows)} needed more attempts")
