"""Run a stage whole, then killed at each given instant and run again; print what became of it.

Called with one JSON argument: task, config, inputs, outputs, folder, and kills, each a pair of

    step N       after the N-th finished step
    update N     after the N-th optimizer update
    turn N       in the middle of a round of episodes: after the N-th step of the environment
    fsync N      at the N-th fsync, which is in the middle of writing a checkpoint
    share X      after the share X of the time that the whole run took, wherever that is, or
                 earlier where that is too late

Every line of the output says for a job which kills hit, and the digests of every run. Imports once
and forks for every attempt, so that dozens of kills take seconds. Not a test itself.
"""

import gc
import hashlib
import importlib
import json
import os
import shutil
import signal
import sys
import time
import traceback
from pathlib import Path

import peft  # noqa: F401 - imported before the fork, as all of these
import torch
import transformers.models.auto.tokenization_auto
import transformers.models.llama.modeling_llama  # noqa: F401
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification  # noqa: F401
from transformers.conversion_mapping import get_checkpoint_conversion_mapping

from posttrain.learning.models.optim import Optimizer
from posttrain.stage.context import StageContext

get_checkpoint_conversion_mapping("llama")


def counted(function, limit, *, before):
    """`function` that ends the process at its `limit`-th call, before or after its work."""
    left = [limit]

    def call(*args, **kwargs):
        left[0] -= 1
        if before and left[0] == 0:
            die()
        result = function(*args, **kwargs)
        if left[0] == 0:
            die()
        return result

    return call


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def attempt(job, folder, kill, whole_seconds=0.0):
    """Run in a forked process; returns True if it was killed."""
    # A collection would copy every page of what was imported into each process.
    gc.collect()
    gc.freeze()
    pid = os.fork()
    if pid:
        status = os.waitpid(pid, 0)[1]
        assert os.WIFSIGNALED(status) or os.waitstatus_to_exitcode(status) == 0
        return os.WIFSIGNALED(status)
    torch.set_num_threads(1)
    kind, at = kill

    def emit(event):
        if kind == "step" and event["kind"] == "progress" and event["done"] == at:
            die()

    # What a killed process wrote is there for the next one; only a dead machine would lose it.
    os.fsync = counted(lambda _handle: None, at if kind == "fsync" else 0, before=True)
    if kind == "update":
        Optimizer.step = counted(Optimizer.step, at, before=False)
    config = importlib.import_module(f"tasks.{job['task']}").TASK.config(**job["config"])
    if kind == "turn":
        played = type(config.producer.environment)
        played.step = counted(played.step, at, before=False)
    if kind == "share":
        # The signal's own action ends the process at that instant, whatever it is doing.
        signal.setitimer(signal.ITIMER_REAL, at * whole_seconds)
    try:
        stage = importlib.import_module(f"tasks.{job['task']}.stage")
        scratch = folder / "scratch"
        context = StageContext(seed=0, threads=1, device="cpu", scratch=scratch, emit=emit)
        inputs = {name: Path(path) for name, path in job["inputs"].items()}
        outputs = {name: folder / name for name in job["outputs"]}
        stage.run(config, inputs, outputs, context)
    except BaseException:  # noqa: BLE001 - the boundary of a forked process: it must not return
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def digest(job, folder):
    """Digest of every file of the outputs, by its path."""
    roots = [folder / name for name in job["outputs"]]
    paths = [path for root in roots for path in [root, *root.rglob("*")]]
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(paths)
        if path.is_file()
    }


def empty(job, folder):
    """Remove what a killed run left of its outputs, as the executor does before every attempt.

    Only the scratch folder outlives a kill; a library's half-written file does not.
    """
    for name in job["outputs"]:
        path = folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def kill(job):
    """The kills that hit, and the digests of every run."""

    def fresh(name):
        folder = Path(job["folder"]) / name
        (folder / "scratch").mkdir(parents=True)
        return folder

    importlib.import_module(f"tasks.{job['task']}.stage")
    if any(kind == "share" for kind, _ in job["kills"]):
        # What is loaded at first use would count as time of the whole run.
        attempt(job, fresh("warm"), ("", 0))
    whole = fresh("whole")
    started = time.perf_counter()
    attempt(job, whole, ("", 0))
    seconds = time.perf_counter() - started
    hit, results = {}, {"whole": digest(job, whole)}
    for kind, at in job["kills"]:
        folder = fresh(f"{kind}-{at}")
        hit[folder.name] = attempt(job, folder, (kind, at), seconds)
        while kind == "share" and not hit[folder.name]:
            # The machine was busier when it ran whole.
            shutil.rmtree(folder)
            at, folder = at / 2, fresh(folder.name)
            hit[folder.name] = attempt(job, folder, (kind, at), seconds)
        empty(job, folder)
        attempt(job, folder, ("", 0))
        results[folder.name] = digest(job, folder)
    return hit, results


def main():
    """Serve jobs until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    # What a stage prints is no answer.
    os.dup2(2, 1)
    for line in sys.stdin:
        print(json.dumps(kill(json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()
