"""A recipe with a preference section, run whole: the stage trains, and its policy is evaluated."""

import json
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RECIPE = """
flow: flows.post_training
synthesize:
  sources:
  - kind: jsonl
    name: coins
    path: coins.jsonl
    columns: {prompt: question, answer: answer, solution: answer}
curate: {problem_filters: {near_duplicates: null, contamination: {ngram: null}}}
pretrain: {steps: 140, hidden: 32, layers: 1, batch_tokens: 1024, vocab_size: 280}
sft: {steps: 2, batch_tokens: 512, learning_rate: 1e-4}
probe: {num_problems: 150, num_samples: 4, max_tokens: 16}
reward: {steps: 10, batch_tokens: 1024}
preference:
  algorithm: {preset: dpo, sft_coefficient: 1.0}
  batch_tokens: 1024
  steps: 30
  learning_rate: 1e-3
  sampling: {max_tokens: 16}
rl: {steps: 2, problems_per_step: 8, max_tokens: 16}
evaluate: {num_samples: 8, pass_at: [1], max_tokens: 16}
"""


def coins():
    """600 problems: the answer is 1 where the question says up, and 2 where it says down."""
    for index in range(300):
        for side, answer in (("up", "1"), ("down", "2")):
            yield {"question": f"{side} {index} =", "answer": f"{side} it is\n#### {answer}"}


@pytest.mark.slow
def test_a_policy_optimized_on_pairs_orders_heldout_ones_and_solves_no_less(toy):
    for package in ("posttrain", "tasks", "flows"):
        shutil.copytree(ROOT / package, toy.root / package)
    toy.write("coins.jsonl", "\n".join(map(json.dumps, coins())))
    toy.recipe(RECIPE)
    done = toy.cli("run", "--local")
    assert done.returncode == 0, done.stderr
    report = json.loads((toy.root / "data/preference/report.json").read_text())
    assert report["accuracy_low"] > 0.5
    evaluated = json.loads((toy.root / "data/evaluate/report.json").read_text())
    solved = {each["name"]: each["pass_at"][0]["value"] for each in evaluated["policies"]}
    assert list(solved) == ["base", "sft", "preference", "rl"]
    assert solved["preference"] > solved["sft"]
