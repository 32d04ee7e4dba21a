"""What a checkpoint in the middle of a generation holds, and what it refuses to go on with."""

import json
import shutil
from typing import Literal

import numpy as np
import polars as pl
import pytest
import torch

from posttrain.learning.curriculum.base import ProblemSampler, ProblemStream
from posttrain.learning.models.checkpoint import read_checkpoint
from posttrain.learning.rewards.combines.base import Combine
from posttrain.learning.rl.learner import PolicyLearner
from posttrain.stage.context import TRACKED_RUN, StageContext
from posttrain.stage.errors import UserError
from tasks.probe.config import ProbeConfig
from tasks.probe.stage import run as probe
from tasks.rl.config import RlStageConfig
from tasks.rl.stage import run

CONFIG = RlStageConfig(
    steps=4,
    problems_per_step=6,
    group_size=4,
    max_tokens=8,
    staleness=1,
    optimization={"optimizer": "adamw", "learning_rate": 5e-3, "warmup_steps": 0},
    updates={"epochs": 2, "minibatches": 2},
    algorithm={
        "advantage": {"kind": "gae", "lam": 0.9},
        "critic": {},
        "regularizers": {"kl": {"coefficient": 0.05}},
        "old_policy": "recomputed",
        "token_weights": {"importance": {"bound": "truncate", "high": 2.0}},
    },
    reference={"kind": "ema", "decay": 0.9},
    draw={"train_on": "all", "sources": {"up": 1.0, "down": 2.0}},
    stop={"metric": "rl/reward", "patience": 50},
    learner={"ema_decay": 0.9},
    checkpoint_every=3,
)


@pytest.fixture(scope="module")
def given(guesser, coins_path, tmp_path_factory):
    """Inputs, with a reference of their own."""
    folder = tmp_path_factory.mktemp("probed")
    outputs = {name: folder / name for name in ("samples", "solve_rates")}
    inputs = {"policy": guesser, "problems": coins_path}
    probe(ProbeConfig(max_tokens=8), inputs, outputs, StageContext.quiet(folder / "scratch"))
    return {**inputs, "solve_rates": outputs["solve_rates"], "reference": guesser}


def train(inputs, scratch):
    outputs = ("policy", "rollouts", "curve", "report")
    scratch.mkdir(exist_ok=True)
    (scratch / TRACKED_RUN).write_text("b0a1")
    run(CONFIG, inputs, {n: scratch / n for n in outputs}, StageContext.quiet(scratch))


@pytest.fixture(scope="module")
def stopped(given, tmp_path_factory):
    """Scratch of a run that ended in the fifth update; a checkpoint was written after the third."""
    scratch, update, calls = tmp_path_factory.mktemp("rl") / "scratch", PolicyLearner.update, []

    def fail(self, samples, **where):
        calls.append(where["index"])
        if len(calls) == 5:
            raise KeyboardInterrupt
        return update(self, samples, **where)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PolicyLearner, "update", fail)
        with pytest.raises(KeyboardInterrupt):
            train(given, scratch)
    return scratch


@pytest.fixture(scope="module")
def checkpoint(stopped):
    (path,) = (stopped / "checkpoints").iterdir()
    return path


def state(checkpoint, name):
    return read_checkpoint(checkpoint).states[name]


def test_it_holds_everything_that_changes(checkpoint):
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    assert manifest["step"] == 3
    assert set(manifest["states"]) == {
        "model", "average", "optimizer", "critic", "reference", "learner", "curriculum", "queue",
        "buffer", "stopping", "curve", "rollouts", "generators", "reward",
        "producer",
    }  # fmt: skip
    assert manifest[TRACKED_RUN] == "b0a1"
    weights, followed = state(checkpoint, "model"), state(checkpoint, "reference")["weights"]
    assert weights.keys() == followed.keys()
    assert not torch.equal(weights["model.norm.weight"], followed["model.norm.weight"])
    # The schedule is a function of the number of updates.
    assert state(checkpoint, "learner") == {"num_updates": 3, "past": {}}
    moments = str(state(checkpoint, "optimizer"))
    assert "exp_avg_sq" in moments
    assert set(state(checkpoint, "generators")) == {"torch", "cuda", "random", "numpy"}


def test_the_open_generation_and_the_one_that_waits_are_whole(checkpoint):
    buffer, queue = state(checkpoint, "buffer"), state(checkpoint, "queue")
    assert (buffer["num_done"], buffer["generation"]["step"]) == (3, 0)
    assert len(buffer["generation"]["rollouts"]) == 6 * 4
    samples = [sample for group in buffer["samples"] for sample in group]
    assert len(samples) == 6 * 4
    # Credit and log-probabilities from before the first update, which no weights give again.
    assert all(len(each["old_logprobs"]) == sum(each["drawn"]) for each in samples)
    assert queue["num_drawn"] == 2
    (waiting,) = queue["waiting"]
    assert (waiting["step"], len(waiting["rollouts"])) == (1, 6 * 4)
    curriculum = state(checkpoint, "curriculum")
    assert set(curriculum["owed"]) == {"up", "down"}


def test_it_names_the_whole_configuration_and_every_input(checkpoint):
    identity = json.loads((checkpoint / "manifest.json").read_text())["identity"]

    def leaves(value, name):
        if not isinstance(value, dict) or not value:
            return {name}
        return {leaf for key, part in value.items() for leaf in leaves(part, f"{name}.{key}")}

    inputs = ("algorithm", "policy", "policy.files", "problems", "solve_rates", "reference.files")
    assert set(identity) == {
        *leaves(CONFIG.keyed(), "config"),
        "seed",
        *(f"inputs.{name}" for name in inputs),
    }


def one_problem_less(path):
    pl.read_parquet(path)[:-1].write_parquet(path)


def other_counts(path):
    frame = pl.read_parquet(path).with_columns(pl.col("attempts") + 1)
    frame.write_parquet(path)


def other_weights(path):
    from safetensors.torch import load_file, save_file

    weights = load_file(path / "model.safetensors")
    weights["model.norm.weight"][0] += 1
    save_file(weights, path / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("name", "change", "named"),
    [
        ("problems", one_problem_less, "inputs.problems="),
        ("solve_rates", other_counts, "inputs.solve_rates="),
        ("reference", other_weights, "inputs.reference.files="),
    ],
)
def test_another_input_is_refused_by_name(given, stopped, tmp_path, name, change, named):
    copy = tmp_path / name
    source = given[name]
    shutil.copytree(source, copy) if source.is_dir() else shutil.copyfile(source, copy)
    change(copy)
    shutil.copytree(stopped, tmp_path / "scratch")
    with pytest.raises(UserError, match=f"this checkpoint was made with {named}"):
        train({**given, name: copy}, tmp_path / "scratch")


class Counting(ProblemSampler):
    """Counts with a number that is none of Python's, from the start or from the first step on."""

    kind: Literal["counting"] = "counting"
    late: bool

    def start(self, pool):
        return CountingStream(0 if self.late else np.int64(0))


class CountingStream(ProblemStream):
    def __init__(self, count):
        self.count = count

    def draw(self, count, *, seed, step, without=()):
        return range(count)

    def observe(self, results):
        self.count = np.int64(len(results))

    def state_dict(self):
        return {"count": self.count}


class Remembering(Combine):
    """Keeps what a checkpoint cannot hold."""

    kind: Literal["remembering"] = "remembering"

    def combine(self, scores, *, step, state):
        state["steps"] = np.arange(step)
        return [0.0 if index % 2 else 1.0 for index in range(len(scores["correct"]))]


@pytest.mark.parametrize(
    ("settings", "said", "num_steps"),
    [
        ({"draw": {"sampler": Counting(late=False)}}, "problem_sampler.counting: .*int64 at", 0),
        ({"draw": {"sampler": Counting(late=True)}}, r"problem_sampler.counting: .*\['count'\]", 1),
        (
            {"reward": {"combine": Remembering()}},
            r"combine.remembering: .*\['steps'\]",
            1,
        ),
    ],
    ids=["at once", "after a step", "of a combination"],
)
def test_a_state_that_no_checkpoint_can_hold_is_refused_when_it_is_saved(
    given, tmp_path, settings, said, num_steps
):
    plain = {"steps": 2, "problems_per_step": 2, "group_size": 2, "max_tokens": 8}
    plain |= {"draw": {"sampler": "uniform"}, "checkpoint_every": 1}
    config = RlStageConfig(**plain | settings)
    events = []
    context = StageContext(0, 1, "cpu", tmp_path / "scratch", events.append)
    outputs = {name: tmp_path / name for name in ("policy", "rollouts", "curve", "report")}
    inputs = {name: given[name] for name in ("policy", "problems")}
    with pytest.raises(UserError, match=f"^rl: {said}"):
        run(config, inputs, outputs, context)
    assert sum(event["kind"] == "progress" for event in events) == num_steps
    # Where nothing is saved, nothing is amiss.
    unsaved = config.model_copy(update={"checkpoint_every": 0})
    run(unsaved, inputs, outputs, StageContext.quiet(tmp_path / "unsaved"))
