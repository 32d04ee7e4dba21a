"""What a user does with `posttrain up` and then sees, told once for every database."""

import time


def over(status, *, schedule="nightly", count=1):
    """True once `count` ticks of a schedule ended so."""

    def condition(journal):
        rows = [row for row in journal.history(schedule) if row.status == status and row.settled]
        return rows if len(rows) >= count else None

    return condition


def flow_run(up, tick, state):
    """The flow run of a tick once Prefect has it in this state."""
    (run,) = up.prefect("/flow_runs/filter", {"flow_runs": {"id": {"any_": [tick.flow_run_id]}}})
    return run if run["state_name"] == state else None


def first_run(up):
    """Declared while nothing is up, run once by hand; both servers show it as one expects."""
    added = up.schedule("add", ".", "--name", "nightly", "--cron", "0 2 1 1 *",
                        "--timezone", "Europe/Berlin", "--only-if-moved",
                        "--watch", "file:data.txt", "--retry-seconds", "0.5")  # fmt: skip
    assert "-01-01 02:00 Europe/Berlin" in added.stdout
    assert "no worker is up here" in added.stdout
    assert "cron: 0 2 1 1 *" in (up.root / "prefect.yaml").read_text()
    up.up()
    up.schedule("run-now", "nightly")
    (tick,) = up.wait(over("succeeded"))
    assert tick.reason == "3 of 3 stages ran"
    (deployment,) = up.prefect("/deployments/filter", {})
    assert (deployment["name"], deployment["status"]) == ("nightly", "READY")
    assert deployment["schedules"][0]["schedule"]["cron"] == "0 2 1 1 *"
    assert deployment["schedules"][0]["schedule"]["timezone"] == "Europe/Berlin"
    flow_runs = up.prefect("/flow_runs/filter", {})
    done = {run["name"]: run for run in flow_runs if run["state_type"] == "COMPLETED"}
    coming = [run for run in flow_runs if run["state_type"] == "SCHEDULED"]
    assert len(coming) == 1
    assert coming[0]["expected_start_time"].endswith("-01-01T01:00:00Z")
    tags = {"recipe:chain", "schedule:nightly"}
    assert all(tags <= set(run["tags"]) for run in flow_runs)
    assert tick.run_id in done
    assert {tick.flow_run_id} == {run["id"] for run in done.values()} - {done[tick.run_id]["id"]}
    (pool,) = up.prefect("/work_pools/filter", {})
    assert (pool["name"], pool["status"]) == ("posttrain", "READY")
    (experiment,) = [
        each
        for each in up.mlflow("/experiments/search", {"max_results": 10})["experiments"]
        if each["name"] == "chain"
    ]
    runs = up.mlflow("/runs/search", {"experiment_ids": [experiment["experiment_id"]]})["runs"]
    assert {run["info"]["run_name"] for run in runs} == {"chain", "first", "second", "third"}
    assert {run["info"]["status"] for run in runs} == {"FINISHED"}


def moved_and_not(up):
    """Nothing moved: over in under a second. A file, or a parameter in a new commit: it runs."""
    with up.journal() as journal:
        journal.add("nightly", time.time() - 3, kind="asked", status="waiting", reason="test")
    (tick,) = up.wait(over("unchanged"))
    assert tick.ended - tick.started < 1
    assert "no input moved since the run of " in tick.reason
    # The journal is written first; Prefect hears of it in the same breath.
    run = up.wait(lambda _: flow_run(up, tick, "Unchanged"))
    assert run["total_run_time"] < 1
    up.project.toy.recipe("second: {amount: 7}")
    (up.root / "data.txt").write_text("two")
    up.project.commit()
    up.project.toy.recipe("second: {amount: 8}")
    with up.journal() as journal:
        journal.add("nightly", time.time(), kind="asked", status="waiting", reason="test")
    tick = up.wait(over("succeeded", count=2))[0]
    assert tick.reason == "2 of 3 stages ran"
    told = up.schedule("history", "nightly", "-v").stdout
    assert "the parameters changed: second.amount 1 -> 7" in told
    assert "the spec changed: commit " in told
    assert "uncommitted edits are left out: recipe.yaml" in told
    assert "file:data.txt moved" in told
