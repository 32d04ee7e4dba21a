"""Real `kill -9`s: wherever one falls, running again ends with the same bytes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from posttrain.pipeline.context import StageContext
from tasks.probe.config import ProbeConfig
from tasks.probe.stage import run as probe

ROOT = Path(__file__).parents[2]

# Imports once and forks for every attempt, so that dozens of kills take seconds. An attempt kills
# itself either after a step or at the n-th fsync, which is in the middle of writing a checkpoint.
SCRIPT = '''
import hashlib, importlib, json, os, signal, sys
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

whole = fresh("whole")
killed = {"never": attempt(whole, ("", 0))}
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


def survives(folder, **job):
    """Assert that every kill happened, and that each run ended as the uninterrupted one."""
    job = {**job, "folder": str(folder), "kills": KILLS}
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
    assert killed == dict.fromkeys(killed, True)
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
