"""What is appended comes back as it was, and the newest record wins whatever the clock says."""

import subprocess
import sys
from dataclasses import replace

import pytest

from posttrain.provenance.ledger import (
    Composition,
    Recall,
    Release,
    Run,
    conflicts,
    explain_conflict,
    open_ledger,
)
from posttrain.provenance.ledger.annotations import TRACKED
from posttrain.stage.errors import UserError


def test_every_field_round_trips(make, ledger, url):
    ledger.append_run(make.full_run(), process="elsewhere 1 x")
    ledger.record(make.full_stage_run())
    with open_ledger(url) as again:
        assert again.run("r-full") == make.full_run()
        assert again.stage_run("s-full") == make.full_stage_run()
        assert again.stage_runs("r-full") == [make.full_stage_run()]
        assert list(again.every_stage_run()) == [make.full_stage_run()]


def test_the_time_of_a_stage_counts_neither_the_start_of_its_process_nor_imports(make, ledger):
    """Of 20 s, 9 in its process, of which it was at work for 4 and its outputs were read for 1."""
    timings = {"execute": 9.0, "stage.import": 2.0, "stage.run": 4.0, "stage.verify": 1.0}
    made = make.stage_run(1, started=10.0, ended=30.0, timings={"store": 3.0, **timings})
    assert made.seconds == 16.0
    # A stage that failed said nothing; of one that was set up before, nothing is to be taken off.
    assert replace(made, timings={"execute": 9.0}).seconds == 20.0
    assert replace(made, timings={"execute": 4.9, **timings, "stage.run": 9.0}).seconds == 20.0
    assert replace(made, started=31.0).seconds == 0.0
    ledger.record(made)
    assert ledger.history.durations(["sft"]) == {"sft": 16.0}


def test_a_batch_is_all_or_nothing(make, ledger):
    ledger.record(make.stage_run(1))
    with pytest.raises(Exception, match=r"(?i)unique"):
        ledger.record(make.stage_run(2, outputs=(make.artifact("o", "d"),)), make.stage_run(1))
    assert [run.id for run in ledger.stage_runs("r1")] == ["s1"]
    ledger.record(make.stage_run(2, outputs=(make.artifact("o", "d"),)))
    assert ledger.succeeded("k2").outputs == (make.artifact("o", "d"),)


def test_newest_success_under_a_key_is_the_one_recorded_last(make, ledger):
    ledger.record(make.stage_run(1, key="k", started=500.0, ended=501.0))
    ledger.record(
        make.stage_run(2, key="k", started=100.0, ended=101.0)
    )  # the clock went backwards
    ledger.record(
        make.stage_run(3, key="k", status="failed"), make.stage_run(4, key="k", status="cached")
    )
    assert ledger.succeeded("k").id == "s2"
    ledger.record(make.stage_run(5, key="k", status="restored"))
    assert ledger.succeeded("k").id == "s5"
    assert ledger.succeeded("unknown") is None


def test_latest_counts_reuse_but_not_failure_and_knows_recipes(make, ledger):
    for number, recipe in enumerate(["small", "large"]):
        ledger.append_run(Run(f"r{number}", recipe, 1.0), process="elsewhere 1 x")
    ledger.record(
        make.stage_run(1, run_id="r0"),
        make.stage_run(2, run_id="r0", status="cached"),
        make.stage_run(3, run_id="r1"),
        make.stage_run(4, run_id="r1", status="failed"),
    )
    assert ledger.history.latest("sft").id == "s3"
    assert ledger.history.latest("sft", "small").id == "s2"
    assert ledger.history.latest("rl") is None


def test_durations_are_those_of_the_last_execution(make, ledger):
    ledger.record(
        make.stage_run(1, started=0.0, ended=9.0),
        make.stage_run(2, started=0.0, ended=4.0),
        make.stage_run(3, status="cached", started=0.0, ended=0.1),
        make.stage_run(
            4, stage="rl", started=50.0, ended=20.0
        ),  # the clock was set back while it ran
    )
    assert ledger.history.durations(["sft", "rl", "never"]) == {"sft": 4.0, "rl": 0.0}


def test_a_recipe_is_timed_by_its_own_runs_alone(make, ledger):
    for name in ("small", "large"):
        ledger.append_run(Run(name, name, 1.0), process="elsewhere 2 x")
    ledger.record(make.stage_run(1, run_id="small", started=0.0, ended=1.0))
    ledger.record(make.stage_run(2, run_id="large", started=0.0, ended=60.0))
    ledger.record(make.stage_run(3, "rl", run_id="large", started=0.0, ended=9.0))
    assert ledger.history.durations(["sft", "rl"], "small") == {"sft": 1.0}
    assert ledger.history.durations(["sft", "rl"], "large") == {"sft": 60.0, "rl": 9.0}
    assert ledger.history.durations(["sft"], "never ran") == {}
    assert ledger.history.durations(["sft"]) == {"sft": 60.0}


def test_finishing_a_run_changes_only_a_running_one(ledger):
    ledger.begin_run(Run("r1", "small", 5.0, mlflow_run_id="m"))
    assert ledger.run("r1").status == "running"
    ledger.finish_run("r1", "succeeded", 9.0, prefect_run_id="p")
    done = Run("r1", "small", 5.0, "", 9.0, "succeeded", mlflow_run_id="m", prefect_run_id="p")
    assert ledger.run("r1") == done
    ledger.finish_run("r1", "failed", 10.0)
    assert ledger.run("r1") == done


def test_runs_are_newest_first_by_recording(ledger):
    for number, started in enumerate([100.0, 50.0, 75.0]):
        ledger.append_run(Run(f"r{number}", "x", started), process="elsewhere 1 x")
    assert [run.id for run in ledger.runs()] == ["r2", "r1", "r0"]
    assert [run.id for run in ledger.runs(1)] == ["r2"]
    assert ledger.run("nope") is None


def test_a_run_whose_process_is_gone_reads_as_killed(ledger, url):
    code = (
        "import sys, os; from posttrain.provenance.ledger import *\n"
        "open_ledger(sys.argv[1]).begin_run(Run('dead', 'x', 1.0)); os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", code, url], check=False).returncode == -9
    ledger.append_run(Run("far", "x", 1.0), process="another-host 1 x")
    ledger.begin_run(Run("mine", "x", 1.0))
    states = {run.id: run.status for run in ledger.runs()}
    assert states == {"dead": "killed", "far": "running", "mine": "running"}


def test_what_repeats_is_stored_once(make, ledger):
    first = replace(make.full_stage_run(), status="succeeded")
    ledger.record(first)
    ledger.record(*(replace(first, id=f"again{i}", status="cached") for i in range(50)))
    counts = {
        table: ledger.store.query(f"SELECT COUNT(*) FROM {table}")[0][0]
        for table in ("stage_runs", "derivations", "edges", "artifacts", "documents", "objects")
    }
    # one derivation of 2 inputs and 1 output; 3 groups of components, and the circumstances;
    # 2 artifacts have an md5
    expected = {"stage_runs": 51, "derivations": 1, "edges": 3}
    assert counts == {**expected, "artifacts": 3, "documents": 4, "objects": 2}
    assert ledger.stage_run("again7") == replace(first, id="again7", status="cached")


def test_the_cache_name_of_bytes_is_learned_from_any_record(make, ledger):
    ledger.record(make.stage_run(1, inputs=(make.artifact("o", "d"),)))
    assert ledger.stage_run("s1").inputs[0].md5 is None
    ledger.record(make.stage_run(2, outputs=(make.artifact("o", "d", md5="m"),)))
    assert ledger.stage_run("s1").inputs[0].md5 == "m"


def test_one_digest_may_be_two_types_and_have_two_paths(make, ledger):
    outputs = (
        make.artifact("a", "d", type="completions"),
        make.artifact("b", "d", type="problems"),
        make.artifact("a", "d", type="completions", path="elsewhere"),
    )
    ledger.record(make.stage_run(1, outputs=outputs))
    assert ledger.stage_run("s1").outputs == outputs


def test_conflicts_are_different_outputs_of_executions_under_one_key(make, ledger):
    def made(number, digest, key, **fields):
        return make.stage_run(number, key=key, outputs=(make.artifact("o", digest),), **fields)

    ledger.record(
        made(1, "d1", "same"), made(2, "d1", "same"),
        made(3, "d1", "differs"), made(4, "d2", "differs"), made(5, "d1", "differs"),
        made(6, "d1", "failed"), make.stage_run(7, key="failed", status="failed"),
        made(8, "d1", "other-a"), made(9, "d2", "other-b"),
        made(10, "d2", "same", status="cached"),
    )  # fmt: skip
    (conflict,) = conflicts(ledger.store)
    assert (conflict.key, conflict.stage) == ("differs", "sft")
    assert [run.id for run in conflict.runs] == ["s5", "s4"]
    assert conflicts(ledger.store, ["same", "failed"]) == []
    assert conflicts(ledger.store, ["same", "differs"]) == [conflict]


def test_parts_are_told_once_and_the_last_word_counts(make, ledger):
    policy, judged = make.artifact("policy", "d1", type="checkpoint"), make.artifact("judged", "d2")
    tokenizer = make.artifact("tokenizer", "t1", type="tokenizer")
    numeric = make.artifact("verifier", "j1", type="verifier")
    exact = make.artifact("verifier", "j2", type="verifier")
    ledger.compositions.add(Composition(policy, (tokenizer,)), Composition(judged, (numeric,)))
    ledger.compositions.add(Composition(policy, (tokenizer,)))
    assert ledger.compositions.all() == [
        Composition(policy, (tokenizer,)),
        Composition(judged, (numeric,)),
    ]
    ledger.compositions.add(Composition(judged, (numeric, exact)))
    parts = ledger.compositions.parts_of(["d1", "d2", "unknown"])
    assert parts == {"d1": (tokenizer,), "d2": (numeric, exact)}


def test_an_mlflow_id_that_came_late_is_read_with_the_record_and_the_last_one_counts(make, ledger):
    ledger.append_run(Run("r1", "small", 1.0), process="elsewhere 2 x")
    ledger.record(make.stage_run(1), make.stage_run(2, mlflow_run_id="early"))
    ledger.annotations.note(TRACKED, {"r1": "of the run", "s1": "late"})
    ledger.annotations.note(TRACKED, {"s1": "later", "s2": "of the view made anew"})
    assert ledger.run("r1").mlflow_run_id == "of the run"
    assert [ledger.stage_run(each).mlflow_run_id for each in ("s1", "s2")] == [
        "later",
        "of the view made anew",
    ]


def test_releases_and_recalls_round_trip(make, ledger):
    members = (make.artifact("policy", "d1", type="checkpoint"), make.artifact("report", "d2"))
    release = Release("v1.0", 5.0, members, "c0ffee", "st")
    ledger.annotations.release(release)
    ledger.annotations.release(Release("v0", 1.0, ()))
    assert ledger.annotations.releases() == [release, Release("v0", 1.0, ())]

    leak = Recall("1", "d1", "leaked test problems", 6.0)
    rows = Recall("2", "d2", "wrong verifier", 7.0, predicate="score < 0.5")
    ledger.annotations.recall(leak, rows)
    assert ledger.annotations.recalls() == [leak, rows]
    ledger.annotations.recall(Recall("3", "d1", "it was another file", 8.0, withdrawn=True))
    assert ledger.annotations.recalls() == [rows]
    ledger.annotations.recall(replace(leak, id="4"))
    assert {recall.id for recall in ledger.annotations.recalls()} == {"2", "4"}


def test_reading_does_not_create_a_ledger(tmp_path):
    with pytest.raises(UserError, match="there is no ledger at .*run the recipe first"):
        open_ledger(tmp_path / "none.db", create=False)
    assert list(tmp_path.iterdir()) == []


def test_other_bytes_from_other_kernels_are_no_finding_against_a_stage(make, ledger):
    def ran(number, digest, **circumstances):
        outputs = (make.artifact("policy", digest),)
        run = make.stage_run(number, key="k", outputs=outputs, circumstances=circumstances)
        ledger.record(replace(run, host="box"))

    ran(1, "d1", torch="AVX2", processor="old")
    ran(2, "d2", torch="AVX512", processor="new")
    (apart,) = conflicts(ledger.store)
    assert not apart.comparable
    assert explain_conflict(apart.runs) == (
        "made with torch's kernels AVX2, later AVX512; the processor old, later new:"
        " not comparable at L0"
    )
    # Once the same kernels have made other bytes, it is one.
    ran(3, "d3", torch="AVX2", processor="old")
    (found,) = conflicts(ledger.store)
    assert found.comparable
    assert "the records know of nothing" in explain_conflict((found.runs[0], found.runs[2]))
