"""Whole runs of a toy recipe: what runs, what is reused, and what a failure leaves behind."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from posttrain.pipeline.execution import begin
from posttrain.pipeline.execution.failures import StageFailed
from posttrain.provenance.dvc import DvcStore
from posttrain.provenance.ledger import open_ledger


def statuses(records):
    return {name: record.status for name, record in records.items()}


def sums(toy):
    return [
        json.loads((toy.root / f"data/{name}/result.json").read_text())["sum"]
        for name in ("first", "second", "third")
    ]


def dvc_status(toy):
    return DvcStore(toy.root, toy.root).status()


def test_a_first_run_executes_everything_and_a_second_nothing(toy):
    assert statuses(toy.run()) == dict.fromkeys(("first", "second", "third"), "succeeded")
    assert sums(toy) == [1, 2, 3]
    assert dvc_status(toy) == []
    assert toy.run() == {}


@pytest.mark.parametrize(
    ("line", "package"), [("", None), ("import scipy\n", "scipy"), ("import torch\n", "torch")]
)
def test_what_is_imported_ahead_goes_by_what_the_stages_import(toy, monkeypatch, line, package):
    stage = next(toy.root.rglob("stage.py"))
    stage.write_text(line + stage.read_text())
    told = []

    class Asked(Exception):
        """Enough is known: nothing is imported, and no stage runs."""

    def processes(*_, packages, **__):
        told.append(packages)
        raise Asked

    monkeypatch.setattr(begin, "StageProcesses", processes)
    with pytest.raises(Asked):
        toy.run()
    assert told == [{package} - {None}]


def test_a_changed_parameter_runs_its_stage_and_what_depends_on_it(toy):
    toy.run()
    assert statuses(toy.run("second.amount=10")) == {
        "first": "cached",
        "second": "succeeded",
        "third": "succeeded",
    }
    assert sums(toy) == [1, 11, 12]
    assert dvc_status(toy) == []


def test_going_back_restores_from_the_cache(toy):
    toy.run()
    toy.run("second.amount=10")
    assert statuses(toy.run()) == {"first": "cached", "second": "restored", "third": "restored"}
    assert sums(toy) == [1, 2, 3]
    assert dvc_status(toy) == []


def test_a_stage_that_makes_the_same_bytes_stops_the_change_there(toy):
    toy.run()
    plan = toy.plan("first.label=renamed")
    assert [plan[name].action for name in ("first", "second", "third")] == [
        "run",
        "pending",
        "pending",
    ]
    assert statuses(toy.run("first.label=renamed")) == {
        "first": "succeeded",
        "second": "cached",
        "third": "cached",
    }


def test_the_plan_says_why(toy):
    assert toy.plan()["first"].reasons == ("it never ran",)
    toy.run()
    (reason,) = toy.plan("second.amount=10")["second"].reasons
    assert "amount" in reason
    assert "1" in reason
    assert "10" in reason


def test_editing_a_helper_reruns_and_editing_a_comment_does_not(toy, edit):
    toy.run()
    stage = toy.root / toy.package / "stage.py"
    edit(stage, "# a comment", "# another comment, and so other bytes for DVC")
    helper = toy.root / (toy.helper.replace(".", "/") + ".py")
    edit(helper, "return 1", "return 2  # of a function that no stage reaches")
    assert toy.run() == {}
    assert dvc_status(toy) == []
    edit(helper, "return a + b", "return a + b + 0")
    assert statuses(toy.run()) == dict.fromkeys(("first", "second", "third"), "succeeded")


def test_an_external_file_is_an_input(toy):
    file = toy.write("words.txt", "one")
    toy.recipe("first: {path: words.txt}\n")
    records = toy.run()
    assert [record.role for record in records["first"].inputs] == ["files.given"]
    assert toy.run() == {}
    file.write_text("two")
    assert toy.plan()["first"].action == "run"


def test_a_deleted_output_comes_back_from_the_cache_or_is_made_again(toy):
    toy.run()
    (toy.root / "data/second/result.json").unlink()
    assert statuses(toy.run())["second"] == "restored"
    assert sums(toy) == [1, 2, 3]
    (toy.root / "data/second/result.json").unlink()
    shutil.rmtree(toy.root / ".dvc/cache")
    assert statuses(toy.run())["second"] == "succeeded"
    assert sums(toy) == [1, 2, 3]


def test_an_output_edited_by_hand_is_put_right(toy):
    toy.run()
    (toy.root / "data/second/result.json").write_text('{"sum": 99}')
    assert statuses(toy.run())["second"] == "restored"
    assert sums(toy) == [1, 2, 3]


def test_from_runs_a_stage_and_all_after_it_again(toy):
    toy.run()
    assert statuses(toy.run(start="second")) == {
        "first": "cached",
        "second": "succeeded",
        "third": "succeeded",
    }


def test_a_failure_keeps_what_is_done_starts_nothing_more_and_leaves_nothing_half_done(toy):
    with pytest.raises(StageFailed, match="told to fail"):
        toy.run("second.mood=fail")
    assert (toy.root / "data/first/result.json").exists()
    assert not (toy.root / "data/second").exists()
    assert list((toy.root / ".posttrain/staging/root").iterdir()) == []
    with open_ledger(toy.root / ".posttrain/ledger.db") as ledger:
        (run,) = ledger.runs()
        recorded = {record.stage: record.status for record in ledger.stage_runs(run.id)}
    assert run.status == "failed"
    assert recorded == {"first": "succeeded", "second": "failed"}
    assert statuses(toy.run()) == {"first": "cached", "second": "succeeded", "third": "succeeded"}


def test_every_stage_that_failed_is_told_not_only_the_first(toy):
    toy.write(
        f"{toy.flow.replace('.', '/')}.py",
        f"""
        from {toy.package} import TASK
        def declare(build):
            for name in ("left", "right"):
                build.stage(name, TASK)
        """,
    )
    with pytest.raises(StageFailed) as failure:
        toy.run("left.mood=fail", "right.mood=fail")
    lines = str(failure.value).splitlines()
    assert [line.partition(" failed: ")[0] for line in lines] == ["stage 'left'", "stage 'right'"]
    assert all("told to fail" in line for line in lines)


@pytest.mark.slow
@pytest.mark.core
def test_stock_dvc_sees_nothing_to_do_and_can_restore(toy):
    toy.run()
    dvc = [sys.executable, "-m", "dvc"]
    done = subprocess.run([*dvc, "repro"], cwd=toy.root, capture_output=True, text=True, check=True)
    assert "Data and pipelines are up to date" in done.stdout
    shutil.rmtree(toy.root / "data")
    subprocess.run([*dvc, "checkout"], cwd=toy.root, capture_output=True, check=True)
    assert sums(toy) == [1, 2, 3]


@pytest.mark.slow
def test_dvc_repro_runs_a_stage_through_us_when_its_parameter_changes(toy, edit):
    toy.run()
    edit(toy.root / "params.yaml", "third:\n  amount: 1", "third:\n  amount: 5")
    dvc = [sys.executable, "-m", "dvc", "repro"]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {**os.environ, "PATH": path}
    done = subprocess.run(dvc, cwd=toy.root, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert sums(toy) == [1, 2, 7]
    assert dvc_status(toy) == []


def start_waiting(toy):
    """Start a run whose second stage waits; return the process once it does."""
    toy.recipe("second: {mood: wait}\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "posttrain", "run", "--local"],
        cwd=toy.root,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "POSTTRAIN_TRACKING": "off"},
    )
    deadline = time.monotonic() + 60
    while not (found := list(toy.root.glob(".posttrain/scratch/*second*/waiting"))):
        assert time.monotonic() < deadline, "the stage did not start"
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.05)
    return process, found[0].parent


@pytest.mark.slow
def test_a_second_run_in_the_same_workspace_is_told_who_holds_it(toy):
    process, scratch = start_waiting(toy)
    try:
        refused = toy.cli("run", "--local")
        assert refused.returncode == 2
        assert f"is locked by process {process.pid}" in refused.stderr
        assert (
            "posttrain run --local" in refused.stderr or "__main__.py run --local" in refused.stderr
        )
    finally:
        (scratch / "go").touch()
        process.wait(60)
    assert process.returncode == 0


@pytest.mark.slow
@pytest.mark.core
def test_after_kill_9_no_stage_lives_on_and_the_next_run_completes(toy):
    process, scratch = start_waiting(toy)
    process.send_signal(signal.SIGKILL)
    process.wait()
    (scratch / "waiting").unlink()
    time.sleep(0.5)
    assert not (scratch / "waiting").exists(), "the stage outlived its executor"
    (scratch / "go").touch()
    assert toy.cli("run", "--local").returncode == 0
    assert sums(toy) == [1, 2, 3]
    with open_ledger(toy.root / ".posttrain/ledger.db") as ledger:
        assert [run.status for run in ledger.runs()] == ["succeeded", "killed"]


def test_a_crashed_stage_is_retried(toy, edit):
    stage = toy.root / toy.package / "stage.py"
    crash = (
        "    once = context.scratch / 'once'\n"
        "    if not once.exists():\n"
        "        once.touch()\n"
        "        import os\n"
        "        os._exit(9)\n"
        "    context.progress(1, 1)\n"
    )
    edit(stage, "    context.progress(1, 1)\n", crash)
    toy.recipe("run: {threads: 1, retries: 1}\n")
    records = toy.run()
    assert [record.attempt for record in records.values()] == [2, 2, 2]
    assert sums(toy) == [1, 2, 3]


def test_equal_work_in_two_stages_is_not_mixed_up(toy):
    toy.run()
    # Now `first` makes what `second` made, and `second` reads what `third` read.
    assert set(statuses(toy.run("first.amount=2")).values()) == {"succeeded"}
    assert sums(toy) == [2, 3, 4]


@pytest.mark.slow
@pytest.mark.core
@pytest.mark.parametrize(
    "number", [signal.SIGHUP, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 15))]
)
def test_an_interrupted_run_ends_at_once_and_its_records_are_closed(toy, number):
    process, scratch = start_waiting(toy)
    process.send_signal(number)
    assert process.wait(20) == 128 + number
    said = process.stderr.read()
    assert said.endswith("stopped; run the same command again to go on from here\n")
    assert "Traceback" not in said
    with open_ledger(toy.root / ".posttrain/ledger.db") as ledger:
        (run,) = ledger.runs()
        statuses = {record.stage: record.status for record in ledger.stage_runs(run.id)}
    assert run.status == "stopped"
    assert statuses == {"first": "succeeded", "second": "stopped"}
    (scratch / "go").touch()
    assert toy.cli("run", "--local").returncode == 0
    assert sums(toy) == [1, 2, 3]
