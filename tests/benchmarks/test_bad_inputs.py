"""A slice of `benchmarks/reliability/bad_inputs`, and that it finds what it is to find."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.reliability import bad_inputs
from benchmarks.reliability.bad_inputs import Case, Said

CASES = bad_inputs.read_cases()
ROOT = Path(__file__).parents[2]
PLAN = Case("recipes", "x", ("plan",), "sft.steps: unknown key")
STAGE = Case("code", "x", ("run",), "stage 'sft' failed", codes=(1,))
KNOWN = "error: sft.steps: unknown key; did you mean 'step'?\n"


@pytest.mark.parametrize(
    ("case", "code", "out", "err", "wrong"),
    [
        (PLAN, 2, "", f"Usage: posttrain plan\n\n{KNOWN}", []),
        # What it says elsewhere, such as the words that it was given, is no sentence.
        (PLAN, 2, "sft.steps: unknown key", "error: no\n", [f"it does not name {PLAN.names!r}"]),
        (
            PLAN,
            2,
            "",
            f"sft.steps: unknown key\n{KNOWN}and more\n",
            ["behind the sentence: and more"],
        ),
        (PLAN, 2, "", KNOWN * 2, ["2 sentences"]),
        (
            PLAN,
            2,
            "",
            "sft.steps: unknown key\n",
            ["no sentences", f"it does not name {PLAN.names!r}"],
        ),
        (PLAN, 0, "", "sft.steps: unknown key\n", ["exit code 0"]),
        (PLAN, 0, "", KNOWN, ["exit code 0", f"a sentence where none is due: {KNOWN[:-1]}"]),
        (STAGE, 1, "", "error: stage 'sft' failed: x\nOnce that is mended, go on.\n", []),
        (
            PLAN,
            1,
            "",
            "Traceback (most recent call last)\n...sft.steps: unknown key\nKeyError: 'a'\n",
            ["exit code 1", "a traceback", "no sentences", f"it does not name {PLAN.names!r}"],
        ),
    ],
)
def test_what_is_wrong_with_an_answer_is_found(case, code, out, err, wrong):
    assert list(bad_inputs.judged(case, Said(code, out, err))) == wrong


def test_the_figures_are_of_the_cases_that_exist():
    kept = json.loads((ROOT / "benchmarks/reliability/bad_inputs.json").read_text())
    by_name = {(case.kind, case.name): case for case in CASES}
    assert [(each["kind"], each["name"]) for each in kept["cases"]] == [*by_name]
    for each in kept["cases"]:
        case = by_name[each["kind"], each["name"]]
        assert each["code"] in case.codes, each
        assert case.names in each["said"], each
        assert each["said"].startswith("error: ") == bool(case.names and each["code"]), each
        assert each["wrong"] == []
    assert kept["figures"] == bad_inputs.figures_of(kept["cases"])


def test_a_folder_in_whose_place_a_file_stood_comes_back_whole(tmp_path):
    for place in ("root", "pristine"):
        (tmp_path / place / "data/sft").mkdir(parents=True)
        (tmp_path / place / "data/sft/x").write_text("x")
    root, pristine = tmp_path / "root", tmp_path / "pristine"
    bad_inputs.STEPS["put"](root, "data", "y")
    bad_inputs._mend(root, pristine, bad_inputs._contents(root, records=True))
    assert (root / "data/sft/x").read_text() == "x"


def test_no_two_cases_are_one():
    named = [(case.kind, case.name) for case in CASES]
    assert len(set(named)) == len(named) >= 300


def tried(*options):
    """Try cases in a process of its own: this one may have imported other flows and tasks."""
    command = [sys.executable, "-m", "benchmarks.reliability.bad_inputs", *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_slice_of_recipes():
    done = tried("--kinds", "recipes", "--every", "40", "--unrun")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["cases"] > 3


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted({case.kind for case in CASES}))
def test_cases_of_each_kind(kind):
    done = tried("--kinds", kind, "--every", "4")
    assert done.returncode == 0, done.stdout + done.stderr
