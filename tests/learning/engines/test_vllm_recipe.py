"""A whole recipe with vLLM as the engine of its probe, its RL and its evaluation."""

import json
import shutil
from pathlib import Path

import polars as pl
import pytest
import torch

from posttrain.data.rows import TokenTable, encode_rows
from posttrain.learning.models.build import build_llama
from posttrain.learning.models.load import save_policy
from posttrain.learning.models.logprobs import wanted_logprobs
from posttrain.learning.models.tokenizer import train_tokenizer
from posttrain.learning.training.alarms.logprob_gap import LogprobGap
from tasks.rl.config import RlStageConfig

ROOT = Path(__file__).parents[3]
STEPS = 3
RECIPE = f"""
flow: flows.post_training
run: {{threads: 1, retries: 0}}
synthesize:
  sources:
  - kind: jsonl
    name: coins
    path: coins.jsonl
    columns: {{prompt: question, answer: answer, solution: solution}}
import_model: {{path: model}}
sft: {{steps: 2, learning_rate: 1.0e-5}}
probe:
  num_problems: 16
  num_samples: 4
  max_tokens: 8
  engine: {{kind: vllm, kv_cache_gib: 0.1, max_num_seqs: 8}}
reward: {{steps: 2}}
rl:
  steps: {STEPS}
  problems_per_step: 4
  max_tokens: 8
  engine: {{kind: vllm, kv_cache_gib: 0.1, max_num_seqs: 8}}
evaluate: {{num_samples: 2, pass_at: [1], max_tokens: 8, engine: vllm}}
"""
COINS = [
    {"question": f"{side} {index} =", "answer": answer, "solution": f"#### {answer}"}
    for index in range(60)
    for side, answer in (("up", "1"), ("down", "2"))
]


def save_guesser(path):
    """A policy that learned from a teacher who is wrong one time in three."""
    tokenizer = train_tokenizer([coin["question"] + "#### 1 2" for coin in COINS], vocab_size=280)
    model = build_llama(tokenizer, hidden=64, layers=1, heads=2, seed=0, max_length=64)
    taught = [(coin["question"], f"#### {n}") for coin in COINS for n in (1, 2, coin["answer"])]
    rows = encode_rows(tokenizer, *map(list, zip(*taught, strict=True)))
    batch = TokenTable(rows, pad=tokenizer.pad_token_id).batch(range(len(rows)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(60):
        logprobs, _ = wanted_logprobs(model, batch.input_ids_BT, wanted_BT=batch.wanted_BT)
        (-logprobs.mean()).backward()
        optimizer.step()
        optimizer.zero_grad()
    save_policy(model, tokenizer, path)


@pytest.fixture
def project(toy):
    for package in ("posttrain", "tasks", "flows"):
        shutil.copytree(ROOT / package, toy.root / package)
    toy.write("coins.jsonl", "\n".join(map(json.dumps, COINS)))
    save_guesser(toy.root / "model")
    toy.recipe(RECIPE)
    return toy


@pytest.mark.engines
@pytest.mark.timeout(600)
def test_a_recipe_runs_on_vllm_and_runs_again_to_the_same_bytes(project):
    done = project.cli("run", "--local")
    assert done.returncode == 0, done.stdout + done.stderr

    gaps = gaps_of(project)
    assert len(gaps) == STEPS
    assert gaps.max() < 1e-3
    rollouts = pl.read_parquet(project.root / "data/rl/rollouts.parquet")
    assert rollouts["versions"].list.first().unique().sort().to_list() == list(range(STEPS))
    before = digests(project)

    again = project.cli("run", "--local", "--from", "probe")
    assert again.returncode == 0, again.stdout + again.stderr
    assert digests(project) == before

    # In bfloat16 it rounds to 8 bits: between a tenth of a percent and what ends a run.
    narrow = ("run", "--local", "--only", "rl", "--set", "rl.engine.dtype=bfloat16")
    drawn = project.cli(*narrow)
    assert drawn.returncode == 0, drawn.stdout + drawn.stderr
    gaps = gaps_of(project)
    assert len(gaps) == STEPS
    assert 1e-3 < gaps.min() <= gaps.max() < RlStageConfig().max_logprob_gap
    assert LogprobGap(steps=1).sounds(gaps.to_list()) is None
    # What ends a run is in no key; another number of sequences is.
    stopping = ("--set", "rl.max_logprob_gap=0.0005", "--set", "rl.engine.max_num_seqs=6")
    stopped = project.cli(*narrow, *stopping)
    assert stopped.returncode == 2
    assert "nats per token, more than max_logprob_gap 0.0005" in stopped.stderr

    # The engine and its settings decide how samples round, so they are in the key.
    plan = project.cli("plan", "--set", "rl.engine.max_num_seqs=4").stdout
    actions = {line.split()[0]: line.split()[1] for line in plan.splitlines()[1:-1]}
    assert actions["probe"] == "up"
    assert actions["rl"] == "run"


def gaps_of(project):
    """How far the engine lay from the trainer in each step of RL, in nats a token."""
    curve = pl.read_parquet(project.root / "data/rl/curve.parquet")
    return curve.filter(pl.col("metric") == "rl/logprob_gap")["value"]


def digests(project):
    """What DVC noted of every artifact."""
    lines = (project.root / "dvc.lock").read_text().splitlines()
    return [line for line in lines if "md5:" in line]


@pytest.mark.slow
def test_an_engine_that_is_not_there_is_one_sentence(project):
    try:
        import vllm  # noqa: F401
    except ModuleNotFoundError:
        pass
    else:
        pytest.skip("vLLM is installed here")
    done = project.cli("run", "--local")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    sentence = done.stderr.strip().splitlines()[-1]
    assert "engine vllm is not installed" in sentence
    assert "pip install --no-deps --requirement requirements-engines.txt" in sentence
    assert not (project.root / "data/probe").exists()
