"""A recipe whose answers are programs, judged by their tests in the sandbox, from file to RL."""

import json
import shutil
from pathlib import Path

import polars as pl
import pytest

ROOT = Path(__file__).parents[2]
RECIPE = """
flow: flows.rl_from_base
format: 3
synthesize:
  sources:
  - kind: jsonl
    name: programs
    path: programs.jsonl
    columns: {prompt: text, answer: code, solution: code}
    verifier: {kind: python_tests, answer: whole, seconds: 5.0}
    parameters: {tests: test_list}
curate: {problem_filters: {near_duplicates: null, contamination: {ngram: null}}}
pretrain: {steps: 250, hidden: 32, layers: 1, vocab_size: 280, batch_tokens: 1024}
probe: {num_problems: 32, num_samples: 4, max_tokens: 16}
judge:
  task: tasks.judge
  inputs: {samples: probe.samples, problems: curate.problems}
rl:
  inputs: {verdicts: judge.verdicts, traces: curate.traces}
  reward:
    components:
      correct: verifier
      told: {kind: stored, verdict: correct}
      alike: trace_likeness
    combine: {kind: sum, weights: {told: 0, alike: 0}}
  steps: 2
  problems_per_step: 16
  group_size: 4
  max_tokens: 16
evaluate: {num_samples: 2, pass_at: [1], max_tokens: 16}
"""


def programs():
    """80 problems: the first line of each asks for 1 or 2, and its test knows which."""
    for n in range(80):
        wanted = 1 + n % 2
        yield {
            "text": f"{('one', 'two')[n % 2]} {n} =",
            "code": f"def f(): return {wanted}",
            "test_list": [f"assert f() == {wanted}"],
        }


# A whole pipeline, and some three hundred programs in the sandbox.
@pytest.mark.slow
@pytest.mark.usefixtures("sandboxed")
def test_rl_is_paid_by_tests_that_run_in_the_sandbox(toy):
    for package in ("posttrain", "tasks", "flows"):
        shutil.copytree(ROOT / package, toy.root / package)
    toy.write("programs.jsonl", "\n".join(map(json.dumps, programs())))
    toy.recipe(RECIPE)

    done = toy.cli("run", "--local", env={"POSTTRAIN_TRACKING": "off"})

    assert done.returncode == 0, done.stderr
    problems = pl.read_parquet(toy.root / "data/curate/problems.parquet")
    answers = dict(problems.select("id", "answer").iter_rows())
    rollouts = pl.read_parquet(toy.root / "data/rl/rollouts.parquet").to_dicts()
    assert {row["solved"] for row in rollouts} == {True, False}
    told = []
    for row in rollouts:
        # What a program says that is one of the two; whatever else it may say is not looked at.
        wanted = answers[row["problem_id"]]
        if row["text"] in ("def f(): return 1", "def f(): return 2"):
            assert row["solved"] is (row["text"] == wanted)
            assert row["reward"] == float(row["solved"])
        if "return" not in row["text"]:
            assert not row["solved"]
        scores = {each["name"]: each["value"] for each in row["components"]}
        assert (scores["alike"] == 1.0) == (row["text"] == wanted)
        told.append(scores["told"])
        # Nobody runs the program again to say what was said of it.
        assert told[-1] in (None, float(row["solved"]))
    assert set(told) == {None, 0.0, 1.0}
    report = json.loads((toy.root / "data/evaluate/report.json").read_text())
    assert [policy["name"] for policy in report["policies"]] == ["base", "rl"]
