"""A file and a model of one's own, the model random: each stage copes, or says what is wrong."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from posttrain.learning.models.load import save_policy
from posttrain.learning.models.tokenizer import train_tokenizer

ROOT = Path(__file__).parents[1]
RECIPE = """
flow: flows.post_training
synthesize:
  sources:
  - kind: jsonl
    name: sums
    path: sums.jsonl
    columns: {prompt: question, answer: answer, solution: answer}
import_model: {path: model}
sft: {steps: 2}
probe: {num_problems: 8, num_samples: 2, max_tokens: 8, most_cut: 1.0}
reward: {steps: 2}
rl: {steps: 2, problems_per_step: 4, max_tokens: 8}
evaluate: {num_samples: 2, pass_at: [1], max_tokens: 8}
"""


def sums():
    """Every sum of two digits, solved as GSM8K does it."""
    for a in range(10):
        for b in range(10):
            solved = f"{a} + {b} = {a + b}\n#### {a + b}"
            yield {"question": f"What is {a} + {b}?", "answer": solved}


@pytest.mark.slow
def test_a_model_that_solves_nothing_is_refused_after_the_probe(toy):
    """Every solution of the file is right, so no row is rejected; that must be no obstacle."""
    for package in ("posttrain", "tasks", "flows"):
        shutil.copytree(ROOT / package, toy.root / package)
    toy.write("sums.jsonl", "\n".join(map(json.dumps, sums())))
    tokenizer = train_tokenizer((row["answer"] for row in sums()), vocab_size=280)
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=32, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=128,
    )  # fmt: skip
    save_policy(Qwen2ForCausalLM(config), tokenizer, toy.root / "model")
    toy.recipe(RECIPE)

    done = toy.cli("run", "--local")
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    sentence = done.stderr.splitlines()[-1]
    assert "or start from a stronger policy" in sentence or "take easier problems" in sentence

    listed = toy.cli("plan").stdout.splitlines()[1:-1]
    actions = {line.split()[0]: line.split()[1] for line in listed if not line.startswith("note:")}
    assert [stage for stage, action in actions.items() if action != "up"] == [
        "reward",
        "rl",
        "evaluate",
    ]
