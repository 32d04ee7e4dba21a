"""A recipe through the command line on a Ray cluster: the tables of the one without, row by row."""

import contextlib
import json
import shutil
import subprocess
import sys
import time

import polars as pl
import psutil
import pytest
import torch
from polars.testing import assert_frame_equal

from posttrain.data.rows import TokenTable, encode_rows
from posttrain.learning.models.build import build_llama
from posttrain.learning.models.load import save_policy
from posttrain.learning.models.logprobs import wanted_logprobs
from posttrain.learning.models.tokenizer import train_tokenizer

pytestmark = pytest.mark.slow
FLOW = """
from tasks.curate import TASK as CURATE
from tasks.evaluate import TASK as EVALUATE
from tasks.import_model import TASK as IMPORT
from tasks.probe import TASK as PROBE
from tasks.rl import TASK as RL
from tasks.synthesize import TASK as SYNTHESIZE
def declare(build):
    raw = build.stage("synthesize", SYNTHESIZE)
    tables = {name: raw[name] for name in ("problems", "heldout", "traces")}
    data = build.stage("curate", CURATE, **tables)
    base = build.stage("import_model", IMPORT)
    probe = build.stage("probe", PROBE, policy=base["policy"], problems=data["problems"])
    given = {"problems": data["problems"], "solve_rates": probe["solve_rates"]}
    rl = build.stage("rl", RL, policy=base["policy"], **given)
    policies = {"base": base["policy"], "rl": rl["policy"]}
    build.stage("evaluate", EVALUATE, problems=raw["heldout"], policies=policies)
"""
RECIPE = """
synthesize:
  sources:
  - {kind: jsonl, name: train, path: train.jsonl, use: train, verifier: format}
  - {kind: jsonl, name: test, path: test.jsonl, use: heldout, verifier: format}
curate: {near_duplicate_shingle: 1}
import_model: {path: model}
probe: {num_samples: 8, max_tokens: 16}
# 66 groups of 8: two batches of the engine, one for each actor.
rl: {steps: 3, problems_per_step: 66, max_tokens: 40, staleness: 1, checkpoint_every: 2,
     learning_rate: 1e-4, draw: {train_on: all}}
evaluate: {num_samples: 2, pass_at: [1], max_tokens: 16}
"""
TABLES = ("curate/problems", "curate/dropped_problems", "probe/samples", "probe/solve_rates",
          "rl/rollouts", "rl/curve", "evaluate/completions")  # fmt: skip
REFUSALS = {
    "address=127.0.0.1:9": "no Ray cluster answers at 127.0.0.1:9; check the address",
    "actors=1000": "1000 actors want 1000 CPUs together, but the cluster has",
    "address=auto": "Ray is not installed; run: pip install 'posttrain[ray]'",
}


def row(prompt, answer):
    return json.dumps({"prompt": prompt, "answer": answer, "solution": f"#### {answer}"})


def problems(word, count):
    return [row(f"{word} {n} plus {n} is as much as", n) for n in range(count)]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A policy that ends as it should half of the time, and else goes on and on."""
    prompts = [json.loads(each)["prompt"] for each in problems("red", 8)] * 2
    texts = ["#### 12"] * 8 + ["it is 12 and so on and so on"] * 8
    tokenizer = train_tokenizer([*prompts, *texts], vocab_size=290)
    model = build_llama(tokenizer, hidden=32, layers=2, heads=2, seed=1, max_length=128)
    taught = encode_rows(tokenizer, prompts, texts)
    batch = TokenTable(taught, pad=tokenizer.pad_token_id).batch(range(len(taught)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(60):
        logprobs, _ = wanted_logprobs(model, batch.input_ids_BT, wanted_BT=batch.wanted_BT)
        (-logprobs.mean()).backward()
        optimizer.step()
        optimizer.zero_grad()
    path = tmp_path_factory.mktemp("model") / "policy"
    save_policy(model, tokenizer, path)
    return path


@pytest.fixture
def project(toy, model):
    """Problems of which some stand there twice, nearly twice, or in the evaluation as well."""
    doubled = [row(f"red {n}  plus {n} is as much as", n) for n in range(5)]
    alike = [row(f"red {n} plus {n} is as much as the red", n) for n in range(5, 9)]
    leaks = [row(f"Blue {n}, plus {n}, is as much as", n) for n in range(3)]
    given = [*problems("red", 70), *doubled, *alike, *leaks]
    toy.write("train.jsonl", "\n".join(given))
    toy.write("test.jsonl", "\n".join(problems("blue", 6)))
    shutil.copytree(model, toy.root / "model")
    toy.write(toy.flow.replace(".", "/") + ".py", FLOW)
    toy.recipe(RECIPE)
    return toy


def tables(project):
    return {name: pl.read_parquet(project.root / f"data/{name}.parquet") for name in TABLES}


def on(**values):
    return [f"--set=run.resources.ray.{name}={value}" for name, value in values.items()]


def run_and_kill(project, *options):
    """Run on the cluster, and kill the first actor that draws for rl."""
    command = [sys.executable, "-m", "posttrain", "run", "--local", *options]
    killed = None
    with subprocess.Popen(
        command, cwd=project.root, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    ) as process:
        while "rl: running" not in process.stderr.readline():
            assert process.poll() is None
        while killed is None and process.poll() is None:
            killed = actor_at_work()
            time.sleep(0.01)
        killed.kill()
        rest = process.stderr.read()
    assert process.returncode == 0, rest
    return killed.pid


def actor_at_work():
    """A process of the cluster, which is below this one, that draws at this moment."""
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if any(part.startswith("ray::WorkerActor.do") for part in process.cmdline()):
                return process
    return None


def test_the_whole_recipe_with_a_killed_actor(project, cluster):
    address = cluster.get_runtime_context().gcs_address
    done = project.cli("run", "--local")
    assert done.returncode == 0, done.stderr
    alone = tables(project)
    dropped = alone["curate/dropped_problems"]["reason"].value_counts().rows()
    assert dict(dropped) == {"exact_duplicate": 5, "near_duplicate": 4, "evaluation_prompt": 3}
    rollouts = alone["rl/rollouts"]
    assert rollouts["reward"].n_unique() == 2
    assert len(rollouts) == 3 * 66 * 8
    ages = rollouts["step"] - 1 - rollouts["versions"].list.first()
    assert ages.unique().sort().to_list() == [0, 1]

    one = on(address=address, cpus=0.1, actors=1)
    killed = run_and_kill(project, *one, "--set=rl.resources.ray.actors=2")
    log = "".join(path.read_text() for path in project.root.glob(".posttrain/**/rl*.log"))
    assert f"the actor in process {killed} is gone; another one does its work" in log
    for name, table in tables(project).items():
        assert_frame_equal(table, alone[name], check_exact=True)

    project.write("without/sitecustomize.py", "import sys; sys.modules['ray'] = None")
    for value, sentence in REFUSALS.items():
        name, _, text = value.partition("=")
        options = on(**({"address": address} | {name: text, "rows": 7}))
        without = {"PYTHONPATH": str(project.root / "without")} if text == "auto" else {}
        refused = project.cli("run", "--local", "--only", "probe", *options, env=without)
        assert refused.returncode == 2
        assert sentence in refused.stderr.splitlines()[-1]
    assert_frame_equal(tables(project)["probe/samples"], alone["probe/samples"])
