"""`posttrain verify` on a project of three small stages: what holds, what does not, and why."""

import json
import sqlite3
import subprocess

import pytest

from posttrain.provenance.ledger import open_ledger

UNREPRODUCIBLE = ('{"sum": total}', '{"sum": total, "noise": __import__("os").urandom(8).hex()}')


@pytest.fixture
def stage_file(toy):
    return toy.root / toy.package / "stage.py"


def verdict(said):
    return json.loads(said.out)


def kept(toy):
    with open_ledger(toy.root / ".posttrain/ledger.db") as ledger:
        return ledger.annotations.verifications()


@pytest.mark.slow
@pytest.mark.core
def test_a_run_of_plain_sums_holds_bit_for_bit_and_the_workspace_stays(toy, posttrain, contents):
    toy.run("third.amount=5")
    before = contents()
    said = posttrain("verify", "latest", "--level", "L0", "-o", "json")
    assert said.code == 0, said.err
    found = verdict(said)
    assert found["holds"] is True
    assert [each["stage"] for each in found["findings"]] == ["first", "second", "third"]
    assert all(each["recorded"] == each["again"] for each in found["findings"])
    assert contents() == before
    # One for each stage run, and one for the run.
    assert [(each.level, each.holds) for each in kept(toy)] == [("L0", True)] * 4


@pytest.mark.slow
def test_a_stage_that_draws_from_the_system_is_named_and_those_after_it_are_not(
    toy, posttrain, stage_file, edit
):
    other = toy.root / f"{toy.package}b"
    other.mkdir()
    for name in ("__init__.py", "config.py", "stage.py"):
        text = (toy.root / toy.package / name).read_text().replace(toy.package, other.name)
        (other / name).write_text(text)
    edit(other / "stage.py", *UNREPRODUCIBLE)
    flow = toy.root / f"{toy.flow.replace('.', '/')}.py"
    edit(flow, f"from {toy.package} import TASK\n",
         f"from {toy.package} import TASK\nfrom {other.name} import TASK as NOISY\n")  # fmt: skip
    edit(flow, 'build.stage("second", TASK', 'build.stage("second", NOISY')
    toy.run()
    said = posttrain("verify", "latest", "--level", "L0", "-o", "json")
    assert said.code == 1
    found = verdict(said)
    # `third` read other bytes in the second run, and is not to blame: on its own inputs it agrees.
    assert {each["stage"]: each["agrees"] for each in found["findings"]} == {
        "first": True,
        "second": False,
        "third": True,
    }
    assert found["advice"] == "not reproducible: second"
    plain = posttrain("verify", "second@latest", "--level", "L0")
    assert plain.code == 1
    assert "differs" in plain.out
    assert "second@" in plain.out.splitlines()[-1]
    assert "does not hold at level L0" in plain.out.splitlines()[-1]
    assert posttrain("verify", "third@latest", "--level", "L0").code == 0
    audit = posttrain("audit")
    assert audit.code == 1
    assert "second: verified at L0, and it did not hold" in audit.out
    assert "third" not in audit.out


@pytest.mark.slow  # its stages load torch
def test_other_bytes_from_another_processor_neither_hold_nor_fail(toy, posttrain, stage_file, edit):
    edit(stage_file, *UNREPRODUCIBLE)
    # What a stage does not load has no kernels.
    stage_file.write_text(f"import torch  # noqa: F401\n{stage_file.read_text()}")
    toy.run()
    # The ledger of a machine that took other kernels.
    with sqlite3.connect(toy.root / ".posttrain/ledger.db") as database:
        elsewhere = "replace(replace(body, '\"AVX2\"', '\"AVX9\"'), '\"AVX512\"', '\"AVX9\"')"
        chosen = "SELECT circumstances FROM stage_runs"
        database.execute(f"UPDATE documents SET body = {elsewhere} WHERE sha IN ({chosen})")
    said = posttrain("verify", "second@latest", "--level", "L0")
    assert said.code == 1
    assert "made with torch's kernels AVX9, here AVX" in said.out
    assert "not comparable at L0 (second)" in said.out
    assert said.out.splitlines()[-1].endswith("neither holds nor fails at level L0.")
    # Nothing is kept that a gate could take for a verdict, and nothing is said of the stage.
    assert kept(toy) == []
    assert posttrain("audit").code == 0


def test_other_code_is_refused_with_the_commit_to_check_out(toy, posttrain, edit):
    for arguments in (["add", "."], ["commit", "-q", "-m", "start"]):
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        subprocess.run(["git", *identity, *arguments], cwd=toy.root, check=True)
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=toy.root, check=True, capture_output=True, text=True
    ).stdout
    toy.run()
    helper = toy.root / f"{toy.helper.replace('.', '/')}.py"
    edit(helper, "return a + b", "return b + a")
    said = posttrain("verify", "latest", "--level", "L0")
    assert said.code == 2
    assert "add" in said.sentence
    assert "cannot be run again as it was" in said.sentence
    assert f"check out commit {head[:12]}" in said.sentence
    assert kept(toy) == []


@pytest.mark.slow
def test_other_seeds_give_an_interval_and_a_verdict(toy, posttrain, stage_file, edit):
    total = "total = add(before, config.amount)"
    edit(stage_file, total, f"{total} + context.seed % 10 / 1000")
    toy.run()
    said = posttrain(
        "verify", "third@latest", "--level", "L3", "--metric", "sum", "--seeds", "4",
        "--within", "0.5", "-o", "json",
    )  # fmt: skip
    assert said.code == 0, said.err
    details = verdict(said)["details"]
    assert sorted(details["values"]) == ["1", "2", "3", "4"]
    assert details["low"] <= details["recorded"] <= details["high"]
    assert "seed 4 (4 of 4)" in said.err
    narrow = posttrain(
        "verify", "third@latest", "--level", "L3", "--metric", "sum", "--seeds", "2",
        "--within", "0.0001",
    )  # fmt: skip
    assert narrow.code == 1
    assert "undecided: 2 seeds tell the mean to within" in narrow.out
    assert [each.holds for each in kept(toy)] == [True, False]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("latest", "--level", "L3", "--metric", "smu"), "no metric 'smu'"),
        (("latest", "--level", "L3"), "no pass@1: name a metric with --metric"),
        (("latest", "--level", "L0", "--seeds", "3"), "belong to --level L3"),
        (("thrid@latest", "--level", "L0"), "no finished stage 'thrid'"),
        (("zzz", "--level", "L0"), "knows no run 'zzz'"),
        (("latest", "--level", "L2"), "no stage that stores rollouts"),
    ],
)
def test_bad_input_is_one_sentence(toy, posttrain, arguments, sentence):
    toy.run()
    said = posttrain("verify", *arguments)
    assert said.code == 2
    assert sentence in said.sentence
