"""The scripts of benchmarks/learner at their smallest, on this machine's CPU and without TRL."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def script(name, *arguments, tmp_path):
    found = tmp_path / "found.json"
    subprocess.run(
        [sys.executable, "-m", f"benchmarks.learner.{name}", *arguments, str(found)],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        check=True,
        capture_output=True,
    )
    return json.loads(found.read_text())


@pytest.mark.slow
def test_the_gpu_script_runs_in_miniature_and_counts_what_it_says(tmp_path):
    options = ["--size", "tiny", "--device", "cpu", "--pairs", "2", "--burst", "2", "--out"]
    report = script("gpu", *options, tmp_path=tmp_path)
    assert report["tokens_per_step"] == 4 * 16
    (ours,) = report["results"]
    assert len(ours["seconds"]) == 2
    middle = sum(ours["seconds"]) / 2
    assert ours["tokens_per_second"] == pytest.approx(64 / middle)
    operations = 6 * 3408 * 64 / middle
    assert ours["mfu"] == pytest.approx(operations / report["peak_operations_per_second"])


@pytest.mark.slow
def test_phases_add_up_to_the_step(tmp_path):
    options = [
        "--sizes",
        "tiny",
        "--workloads",
        "sft",
        "grpo",
        "dpo",
        "reward",
        "--steps",
        "2",
        "--json",
    ]
    for each in script("phases", *options, tmp_path=tmp_path)["results"]:
        spent = dict(each["milliseconds"])
        assert spent.pop("step") == pytest.approx(sum(spent.values()))
        assert (spent["sampling"] > 0) == (each["workload"] == "grpo")
        assert spent["layers, forward"] > 0
        assert spent["backward"] > 0
        assert 0 < each["fraction_of_peak"] < 1
