"""Real `kill -9`s: wherever one falls, running again ends with the same bytes."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from posttrain.pipeline.context import StageContext
from tasks.probe.config import ProbeConfig
from tasks.probe.stage import run as probe

ROOT = Path(__file__).parents[2]

# Imports once and forks for every attempt, so that dozens of kills take seconds. An attempt kills
# itself after a step, at the n-th fsync, which is in the middle of writing a checkpoint, or after a
# share of the time that the whole run took.
SCRIPT = '''
import hashlib, importlib, json, os, signal, sys, threading, time
from pathlib import Path
import torch
import transformers.models.llama.modeling_llama, transformers.models.auto.tokenization_auto
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification
from transformers.conversion_mapping import get_checkpoint_conversion_mapping
get_checkpoint_conversion_mapping("llama")
from posttrain.pipeline.context import StageContext

job = json.loads(sys.argv[1])
task = importlib.import_module(f"tasks.{job['task']}").TASK
stage = importlib.import_module(f"tasks.{job['task']}.stage")

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def attempt(folder, kill):
    """Run in a forked process; returns True if it was killed."""
    pid = os.fork()
    if pid:
        return os.waitpid(pid, 0)[1] == signal.SIGKILL
    torch.set_num_threads(1)
    kind, at = kill
    def emit(event):
        if kind == "step" and event["kind"] == "progress" and event["done"] == at:
            die()
    if kind == "after":
        threading.Timer(at * seconds, die).start()
    if kind == "fsync":
        left, fsync = [at], os.fsync
        def counted(handle):
            left[0] -= 1
            die() if left[0] == 0 else fsync(handle)
        os.fsync = counted
    context = StageContext(seed=0, threads=1, device="cpu", scratch=folder / "scratch", emit=emit)
    inputs = {name: Path(path) for name, path in job["inputs"].items()}
    outputs = {name: folder / name for name in job["outputs"]}
    stage.run(task.config(**job["config"]), inputs, outputs, context)
    os._exit(0)

def digest(folder):
    roots = [folder / name for name in job["outputs"]]
    paths = [path for root in roots for path in [root, *root.glob("*")]]
    files = sorted(path for path in paths if path.is_file())
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}

def fresh(name):
    folder = Path(job["folder"]) / name
    (folder / "scratch").mkdir(parents=True)
    return folder

whole, began = fresh("whole"), time.perf_counter()
killed = {"never": attempt(whole, ("", 0))}
seconds = time.perf_counter() - began
results = {"whole": digest(whole)}
for kind, at in job["kills"]:
    folder = fresh(f"{kind}{at}")
    killed[folder.name] = attempt(folder, (kind, at))
    attempt(folder, ("", 0))
    results[folder.name] = digest(folder)
print(json.dumps([killed, results]))
'''
OPTIMISATION = {"epochs": 2.0, "batch_tokens": 200, "checkpoint_every": 2, "warmup_steps": 2}
# A checkpoint makes 7 fsyncs: three states, the manifest, two folders, and the folder above.
KILLS = [("step", 1), ("step", 5), ("fsync", 2), ("fsync", 7), ("fsync", 20)]


def survives(folder, kills=KILLS, **job):
    """Assert that each run ended as the uninterrupted one, and that every planned kill happened.

    A kill after a share of the whole run's time may come too late; most must not.
    """
    job = {**job, "folder": str(folder), "kills": kills}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(job, default=str)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    killed, results = json.loads(done.stdout)
    assert not killed.pop("never")
    in_time = [was for name, was in killed.items() if name.startswith("after")]
    assert sum(in_time) >= len(in_time) / 2
    assert all(was for name, was in killed.items() if not name.startswith("after"))
    assert any("safetensors" in name for name in results["whole"])
    for name, digests in results.items():
        assert digests == results["whole"], f"killed at {name}"


@pytest.fixture
def tables(answers, write):
    return {"all": write(answers, "all"), "verified": write(answers.filter("verified"), "verified")}


def test_pretrain(tables, tmp_path):
    size = {"hidden": 16, "layers": 1, "heads": 2, "vocab_size": 290}
    survives(
        tmp_path,
        task="pretrain",
        config=OPTIMISATION | size,
        inputs={"corpus": tables["all"]},
        outputs=["policy", "curve"],
    )


def test_sft(tables, base, tmp_path):
    survives(
        tmp_path,
        task="sft",
        config=OPTIMISATION,
        inputs={"policy": base, "traces": tables["verified"]},
        outputs=["policy", "curve"],
    )


def test_reward(tables, base, tmp_path):
    survives(
        tmp_path,
        task="reward",
        config=OPTIMISATION | {"parameterisation": "likelihood"},
        inputs={"policy": base, "samples": tables["all"]},
        outputs=["reward_model", "pairs", "curve", "report"],
    )


def judged(guesser, coins_path, folder):
    """Samples of the guesser with their verdicts."""
    probed = {name: folder / name for name in ("samples", "solve_rates")}
    given = {"policy": guesser, "problems": coins_path}
    probe(ProbeConfig(max_tokens=8), given, probed, StageContext.quiet(folder / "scratch"))
    return {**given, "samples": probed["samples"]}


SAMPLING = {"problems": 20, "num_samples": 4, "max_tokens": 8}
PREFERENCE = {
    "offline": {"sampling": SAMPLING, "steps": 7, "algorithm": "kto"},
    "rounds": {
        "sampling": SAMPLING,
        "rounds": 3,
        "steps": 4,
        "algorithm": "xpo",
        "reference": "round",
        "learner": {"ema_decay": 0.5, "lora": {"rank": 2}},
    },
}


@pytest.mark.parametrize("kind", PREFERENCE)
def test_preference(kind, guesser, coins_path, tmp_path):
    # The last is in the middle of a round that is not the first.
    more = {"offline": [], "rounds": [("step", 3), ("fsync", 40)]}
    survives(
        tmp_path,
        kills=[*KILLS[2:], *more[kind]] if kind == "rounds" else KILLS[:4],
        task="preference",
        config=OPTIMISATION | PREFERENCE[kind],
        inputs=judged(guesser, coins_path, tmp_path / "probe"),
        outputs=["policy", "pairs", "curve", "report"],
    )


LEARNERS = {
    "sft": {"learner": {"packing": True, "lora": {"rank": 2}, "ema_decay": 0.5}},
    "reward": {"learner": {"early_stop": {"every": 2, "patience": 3}}, "parameterisation": "head"},
    "offline": PREFERENCE["offline"],
    "rounds": PREFERENCE["rounds"],
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", LEARNERS)
def test_at_random_instants(kind, tables, base, guesser, coins_path, tmp_path):
    """Ten kills of each learner: at any moment of the run, or in the middle of any write."""
    chance = random.Random(f"kills of {kind}")
    kills = [("after", round(chance.uniform(0.05, 0.9), 3)) for _ in range(6)]
    kills += [("fsync", chance.randint(1, 20)) for _ in range(3)] + [("step", chance.randint(1, 4))]
    sft = {"policy": base, "traces": tables["verified"]}
    reward = {"policy": base, "samples": tables["all"]}
    survives(
        tmp_path,
        kills=kills,
        task=kind if kind in ("sft", "reward") else "preference",
        config=OPTIMISATION | LEARNERS[kind],
        inputs={"sft": sft, "reward": reward}.get(kind)
        or judged(guesser, coins_path, tmp_path / "probe"),
        outputs={"sft": ["policy", "curve"], "reward": ["reward_model", "curve", "report"]}.get(
            kind, ["policy", "pairs", "curve", "report"]
        ),
    )


def test_rl(guesser, coins_path, tmp_path):
    probed = {name: tmp_path / name for name in ("samples", "solve_rates")}
    given = {"policy": guesser, "problems": coins_path}
    context = StageContext.quiet(tmp_path / "scratch")
    probe(ProbeConfig(max_tokens=8), given, probed, context)
    survives(
        tmp_path,
        task="rl",
        config={
            "steps": 7,
            "problems_per_step": 6,
            "group_size": 4,
            "max_tokens": 8,
            "optimisation": {"epochs": 2, "minibatches": 2},
            "checkpoint_every": 6,
        },
        inputs={**given, "solve_rates": probed["solve_rates"]},
        outputs=["policy", "rollouts", "curve", "report"],
    )
