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
PLAN = Case("recipes", "x", ("plan",), "sft.steps")


@pytest.mark.parametrize(
    ("code", "err", "wrong"),
    [
        (2, "error: sft.steps: unknown key\n", []),
        (0, "sft.steps\n", ["exit code 0"]),
        (2, "sft.steps is not known\n", ["no sentence"]),
        (2, "error: something is wrong\n", ["it does not name 'sft.steps'"]),
        (
            1,
            "Traceback (most recent call last)\n...sft.steps\nKeyError: 'a'\n",
            ["exit code 1", "a traceback", "no sentence"],
        ),
    ],
)
def test_what_is_wrong_with_an_answer_is_found(code, err, wrong):
    assert list(bad_inputs.judged(PLAN, Said(code, "", err))) == wrong


def test_no_two_cases_are_one():
    named = [(case.kind, case.name) for case in CASES]
    assert len(set(named)) == len(named) >= 300


def tried(*options):
    """Try cases in a process of its own: this one may have imported other flows and tasks."""
    command = [sys.executable, "-m", "benchmarks.reliability.bad_inputs", *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_a_slice_of_recipes():
    done = tried("--kinds", "recipes", "--every", "12", "--unrun")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["cases"] > 10


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted({case.kind for case in CASES}))
def test_cases_of_each_kind(kind):
    done = tried("--kinds", kind, "--every", "4")
    assert done.returncode == 0, done.stdout + done.stderr
