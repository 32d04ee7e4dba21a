"""A run that keeps its best policy saves that one, and its rollouts lead there."""

import pytest

from posttrain.data.schemas import CURVE, ROLLOUTS
from posttrain.data.tables import read_table
from posttrain.learning.models.load import load_policy, weights_digest
from posttrain.learning.rl.learner import PolicyLearner
from posttrain.learning.rl.replay import replay
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from tasks.probe.config import ProbeConfig
from tasks.probe.stage import run as probe
from tasks.rl.config import RlStageConfig
from tasks.rl.stage import run
from tests.quick import first_now

SMALL = {
    "steps": 8,
    "problems_per_step": 6,
    "group_size": 4,
    "max_tokens": 8,
    "optimization": {
        "optimizer": "adamw",
        "learning_rate": 5e-3,
        "warmup_steps": 0,
        "lr_schedule": "constant",
    },
    "updates": {"minibatches": 2},
    "checkpoint_every": 3,
}
BEST = {"stop": {"metric": "rl/reward", "patience": 50, "keep": "best"}}


@pytest.fixture(scope="module")
def inputs(guesser, coins_path, tmp_path_factory):
    folder = tmp_path_factory.mktemp("probed")
    outputs = {name: folder / name for name in ("samples", "solve_rates")}
    given = {"policy": guesser, "problems": coins_path}
    probe(ProbeConfig(max_tokens=8), given, outputs, StageContext.quiet(folder / "scratch"))
    return {**given, "solve_rates": outputs["solve_rates"]}


def train(inputs, folder, **config):
    folder.mkdir(exist_ok=True)
    outputs = {name: folder / name for name in ("policy", "rollouts", "curve", "report")}
    context = StageContext.quiet(folder / "scratch")
    metrics = run(RlStageConfig(**SMALL | config), inputs, outputs, context)
    return metrics, weights_digest(load_policy(outputs["policy"]).model)


@pytest.fixture(scope="module")
def kept(inputs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("kept") / "run"
    return folder, *train(inputs, folder, **BEST)


def test_it_is_the_policy_that_the_best_step_began_with(kept, inputs, tmp_path):
    folder, metrics, digest = kept
    rewards = read_table(folder / "curve", CURVE).filter(metric="rl/reward")["value"].to_list()
    # Step s measures the policy after s - 1 steps.
    best = rewards.index(max(rewards))
    assert 0 < best < len(rewards) - 1
    assert (metrics["rl/kept_steps"], metrics["rl/steps"]) == (best, 8)
    assert train(inputs, tmp_path / "short", steps=best)[1] == digest
    rollouts = read_table(folder / "rollouts", ROLLOUTS)
    assert rollouts["step"].max() == 8
    assert rollouts.filter(rollouts["trained"])["step"].max() == best


def test_its_rollouts_alone_lead_there(kept, guesser, tmp_path):
    folder, _, digest = kept
    context = StageContext.quiet(tmp_path)
    config = RlStageConfig(**SMALL | BEST)
    assert replay(config, {"policy": guesser}, folder / "rollouts", context) == digest


@pytest.mark.parametrize("last", first_now([7, 4, 10]))
def test_a_killed_run_keeps_the_same(kept, inputs, tmp_path, monkeypatch, last):
    """Checkpoints are those of updates 3, 6, 9, 12 of 16: between two updates of a step, too."""
    calls, update = [], PolicyLearner.update

    def fail_later(self, samples, **where):
        calls.append(where)
        if len(calls) > last:
            raise KeyboardInterrupt
        return update(self, samples, **where)

    monkeypatch.setattr(PolicyLearner, "update", fail_later)
    with pytest.raises(KeyboardInterrupt):
        train(inputs, tmp_path / "cut", **BEST)
    monkeypatch.undo()
    assert train(inputs, tmp_path / "cut", **BEST) == kept[1:]


def test_a_run_that_made_nothing_better_is_refused(inputs, tmp_path):
    stop = BEST["stop"] | {"min_improvement": 1.0}
    with pytest.raises(UserError, match="no step's policy was better than the one that it started"):
        train(inputs, tmp_path / "run", stop=stop, steps=3)


def test_rollouts_of_older_policies_cannot_say_which_is_best():
    with pytest.raises(UserError, match=r"rl: stop.keep best .* set staleness to 0"):
        RlStageConfig.parse({**BEST, "staleness": 1}, where="rl")
