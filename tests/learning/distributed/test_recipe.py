"""A recipe through the command line: every stage that trains, in one process and in two."""

import json
import shutil

import polars as pl
import pytest

pytestmark = pytest.mark.slow
TOLERANCE = 1e-4
STAGES = ("pretrain", "sft", "reward", "preference", "rl")
FLOW = """
from tasks.import_model import TASK as IMPORT
from tasks.preference import TASK as PREFERENCE
from tasks.pretrain import TASK as PRETRAIN
from tasks.probe import TASK as PROBE
from tasks.reward import TASK as REWARD
from tasks.rl import TASK as RL
from tasks.sft import TASK as SFT
from tasks.synthesize import TASK as SYNTHESIZE
def declare(build):
    raw = build.stage("synthesize", SYNTHESIZE)
    build.stage("pretrain", PRETRAIN, corpus=raw["corpus"])
    policy = build.stage("import_model", IMPORT)["policy"]
    build.stage("sft", SFT, policy=policy, traces=raw["traces"])
    probe = build.stage("probe", PROBE, policy=policy, problems=raw["problems"])
    build.stage("reward", REWARD, policy=policy, samples=probe["samples"])
    build.stage("preference", PREFERENCE, policy=policy, samples=probe["samples"])
    rates = probe["solve_rates"]
    build.stage("rl", RL, policy=policy, problems=raw["problems"], solve_rates=rates)
"""
RECIPE = """
synthesize:
  heldout_fraction: 0.2
  sources:
  - {kind: jsonl, name: sides, path: sides.jsonl, columns: {solution: answer}}
import_model: {path: model}
pretrain: {hidden: 16, heads: 2, layers: 2, vocab_size: 280, steps: 4, batch_tokens: 200}
sft: {steps: 4, batch_tokens: 100}
probe: {num_samples: 6, max_tokens: 8}
reward: {steps: 4, batch_tokens: 200}
preference: {steps: 4, batch_tokens: 200}
rl: {steps: 3, problems_per_step: 4, group_size: 4, max_tokens: 8, draw: {train_on: all}}
"""


def curves(project):
    """All learning curves by stage, step and metric."""
    found = {}
    for stage in STAGES:
        frame = pl.read_parquet(project.root / f"data/{stage}/curve.parquet")
        found |= {(stage, step, metric): value for step, metric, value in frame.rows()}
    return found


def test_two_processes_have_the_curves_of_one(toy, guesser, sides):
    rows = [{"prompt": prompt, "answer": f"#### {answer}"} for prompt, answer in sides]
    toy.write("sides.jsonl", "\n".join(map(json.dumps, rows)))
    shutil.copytree(guesser, toy.root / "model")
    toy.write(toy.flow.replace(".", "/") + ".py", FLOW)
    toy.recipe(RECIPE)
    done = toy.cli("run", "--local")
    assert done.returncode == 0, done.stderr
    one = curves(toy)
    together = "--set=run.resources.processes=2"
    planned = toy.cli("plan", together).stdout
    told = {line.split()[0] for line in planned.splitlines() if "2 processes that train" in line}
    assert told == set(STAGES)
    done = toy.cli("run", "--local", together)
    assert done.returncode == 0, done.stderr
    assert {stage for stage in STAGES if f"{stage}: ran" in done.stderr} == set(STAGES)
    two = curves(toy)
    assert one.keys() == two.keys()
    # Accuracies count signs, and at the first step those are of gaps that are rounding alone.
    apart = {key: abs(one[key] - two[key]) for key in one if not key[2].endswith("accuracy")}
    assert max(apart.values()) < TOLERANCE
