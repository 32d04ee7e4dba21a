"""Real kills of RL, in the middle of a generation's updates too: the same bytes in the end."""

import json
import random

import pytest

from posttrain.data.schemas import IDENTITY, PROBLEMS, Problem, problems_table, with_row_ids
from posttrain.data.tables import write_table
from posttrain.learning.episodes.worlds.guess import Guess
from posttrain.stage.context import StageContext
from tasks.probe.config import ProbeConfig
from tasks.probe.stage import run as probe

STEPS, UPDATES = 5, 4
BASE = {
    "steps": STEPS,
    "problems_per_step": 6,
    "group_size": 4,
    "max_tokens": 8,
    "optimization": {"optimizer": "adamw", "learning_rate": 5e-3, "warmup_steps": 0},
    "updates": {"epochs": 2, "minibatches": 2},
    # Of four updates in a step: a checkpoint falls now between steps, now between updates.
    "checkpoint_every": 3,
}
SEVERAL_UPDATES = BASE | {
    "algorithm": {"advantage": {"scale": "sample"}},
    "draw": {"train_on": "all"},
    "stop": {"metric": "rl/reward", "patience": 50, "keep": "best"},
}
CORRECTED = {
    "old_policy": "recomputed",
    "token_weights": {"importance": {"bound": "truncate", "high": 2.0}},
}
ONE_STEP_OFF = BASE | {
    "staleness": 1,
    "algorithm": {
        "advantage": {"kind": "gae", "lam": 0.9},
        "critic": {},
        "regularizers": {"kl": {"coefficient": 0.05}},
        **CORRECTED,
    },
    "reference": {"kind": "ema", "decay": 0.9},
    "draw": {
        "sampler": "solve_rate",
        "sources": {"up": 1.0, "down": 2.0},
        "max_rounds": 2,
        "train_on": "signal",
    },
    "stop": {"metric": "rl/reward", "patience": 50},
}
# Multipliers and the best lengths are remembered from step to step, and so in the checkpoint.
SEVERAL_REWARDS = BASE | {
    "reward": {
        "components": {
            "correct": "verifier",
            "form": {"kind": "format", "pattern": "#### .*", "when": "correct"},
            "brief": {"kind": "best_length", "when": "correct"},
            "tokens": "tokens",
        },
        "combine": {
            "kind": "lagrangian",
            "maximize": {"correct": 1.0, "form": 0.2, "brief": {"from": 0.2, "to": 0.5, "over": 4}},
            "limits": {"tokens": {"at_most": 3.0}},
        },
        "bonus_may_outweigh": True,
    },
}
# Nobody guesses right here: what is said is paid by its length.
EPISODES = SEVERAL_REWARDS | {
    "max_tokens": 6,
    "producer": {"kind": "episodes", "environment": "guess", "most_turns": 3},
}
CONFIGS = {
    "several_updates": SEVERAL_UPDATES,
    "one_step_off": ONE_STEP_OFF,
    "several_rewards": SEVERAL_REWARDS,
}


@pytest.fixture(scope="module")
def inputs(guesser, coins_path, tmp_path_factory):
    folder = tmp_path_factory.mktemp("probed")
    probed = {name: folder / name for name in ("samples", "solve_rates")}
    given = {"policy": guesser, "problems": coins_path}
    probe(ProbeConfig(max_tokens=8), given, probed, StageContext.quiet(folder / "scratch"))
    return {**given, "solve_rates": probed["solve_rates"]}


@pytest.fixture(scope="module")
def guessing(guesser, tmp_path_factory):
    """Problems of the world of guesses, for a policy that has never heard of them."""
    world, draw = Guess(guesses=3), random.Random(0)
    posed = [world.pose(draw) for _ in range(20)]
    problems = [
        Problem("guess", prompt, str(facts["hidden"]), 1, "played",
                metadata=json.dumps({"guess": facts}))
        for prompt, facts in posed
    ]  # fmt: skip
    path = tmp_path_factory.mktemp("guessing") / "problems.parquet"
    write_table(with_row_ids(problems_table(problems), IDENTITY["problems"]), path, PROBLEMS)
    return {"policy": guesser, "problems": path}


OUTPUTS = ["policy", "rollouts", "curve", "report"]


# Four runs that are killed and gone on with, each: one config at every change.
@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.core if name == "several_rewards" else ())
        for name in CONFIGS
    ],
)
def test_a_kill_leaves_no_trace(inputs, tmp_path, kill_runs, name):
    """Between two updates after a checkpoint and before one, in one, and after a step."""
    # A critic steps its own optimizer before the policy's: two steps an update.
    per_update = 2 if name == "one_step_off" else 1
    kills = [("update", 4 * per_update), ("update", 6 * per_update), ("fsync", 20), ("step", 3)]
    job = {"task": "rl", "config": CONFIGS[name], "inputs": inputs, "outputs": OUTPUTS}
    kill_runs(tmp_path, kills, **job)


# 6 problems and 4 episodes of each, 3 turns: a step has 72 steps of the environment.
@pytest.mark.parametrize(
    "kills",
    [
        pytest.param(
            [("turn", 5), ("turn", 2 * 72 + 30)],
            marks=[pytest.mark.slow, pytest.mark.core],
        ),
        pytest.param(
            [("turn", at) for at in (1, 72, 73, 100, 200, 359)]
            + [("share", at) for at in (0.2, 0.35, 0.5, 0.65, 0.8, 0.95)],
            marks=pytest.mark.slow,
        ),
    ],
    ids=["two", "many"],
)
def test_a_kill_in_the_middle_of_episodes_leaves_no_trace(guessing, tmp_path, kill_runs, kills):
    job = {"task": "rl", "config": EPISODES, "inputs": guessing, "outputs": OUTPUTS}
    kill_runs(tmp_path, kills, **job)


# A store of fewer episodes than are drawn, and a policy that learns from old and new ones.
STORED = EPISODES | {
    "steps": 3,
    "algorithm": {
        "advantage": {
            "kind": "learned",
            "values": {"kind": "td", "updates": 2, "episodes": 6, "capacity": 40, "teach": "both"}
            | {"recalled": 5},
        }
    },
}


@pytest.mark.slow
@pytest.mark.core
def test_a_kill_leaves_stored_episodes_and_what_learns_from_them_whole(
    guessing, tmp_path, kill_runs
):
    """A checkpoint falls now between steps, now between the policy's updates."""
    kills = [("update", 5), ("step", 2)]
    job = {"task": "rl", "config": STORED, "inputs": guessing, "outputs": OUTPUTS}
    kill_runs(tmp_path, kills, **job)


@pytest.mark.slow
def test_a_kill_while_others_draw_ahead_leaves_no_trace(guessing, tmp_path, kill_runs):
    """After a step and within one, and at an instant: in whichever episodes of others."""
    kills = [("step", 2), ("update", 7), ("update", 18), ("share", 0.8)]
    ahead = EPISODES | {"staleness": 1, "ahead": 1, "algorithm": CORRECTED}
    job = {"task": "rl", "config": ahead, "inputs": guessing, "outputs": OUTPUTS}
    kill_runs(tmp_path, kills, **job)


@pytest.mark.slow
def test_a_kill_while_episodes_are_carried_over_leaves_no_trace(guessing, tmp_path, kill_runs):
    """Within a step's rounds, between two updates, after a step, in a checkpoint, at an instant."""
    kills = [("turn", 20), ("update", 3), ("step", 2), ("fsync", 15), ("share", 0.7)]
    producer = EPISODES["producer"] | {"kind": "partial", "rounds": 2, "at_once": 3}
    carried = EPISODES | {"producer": producer, "algorithm": CORRECTED}
    job = {"task": "rl", "config": carried, "inputs": guessing, "outputs": OUTPUTS}
    kill_runs(tmp_path, kills, **job)


def instants(name):
    """Twelve random moments, as shares of the time of the whole run."""
    source = random.Random(f"instants:{name}")
    return [("share", round(source.uniform(0.05, 0.95), 4)) for _ in range(12)]


KILLS = {
    "steps": [("step", at) for at in range(1, STEPS)],
    "first_updates": [("update", at) for at in range(1, STEPS * UPDATES // 2 + 1)],
    "last_updates": [("update", at) for at in range(STEPS * UPDATES // 2 + 1, STEPS * UPDATES + 1)],
    "checkpoints": [("fsync", at) for at in (1, 5, 12, 13, 14, 27, 40)],
    "instants": [],
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KILLS)
@pytest.mark.parametrize("name", CONFIGS)
def test_many_kills_leave_no_trace(inputs, tmp_path, kill_runs, name, kind):
    """43 kills a config: at every step and update, in checkpoints, and at random instants."""
    # A critic's optimizer steps before the policy's, so every count falls between the two as well.
    kills = KILLS[kind] or instants(name)
    job = {"task": "rl", "config": CONFIGS[name], "inputs": inputs, "outputs": OUTPUTS}
    kill_runs(tmp_path, kills, **job)
