"""A step's rules that change or that chance decides: a run of them is exact."""

from functools import partial

import pytest

from posttrain.learning.rl.replay import replay
from posttrain.stage.context import StageContext
from tests.tasks.exact import killed_before_an_update, trained_on_coins

SETTINGS = {
    "steps": 5,
    "problems_per_step": 4,
    "group_size": 4,
    "max_tokens": 6,
    "optimization": {
        "optimizer": "adamw",
        "learning_rate": 5e-3,
        "warmup_steps": 0,
        "lr_schedule": "constant",
    },
    "updates": {"epochs": 2},
    "draw": {"sampler": {"kind": "cyclical", "steps": 1}},
    "reference": {"kind": "periodic", "every": 4},
    "algorithm": {
        "surrogate": {
            "kind": "by_phase",
            "first": "clip",
            "second": "sapo",
            "phase": {"from": 0.0, "to": 1.0, "over": 2, "after": 1},
        },
        "token_weights": {
            "covariance": {"share": 0.2, "low": 0.0},
            "likely_by_reference": {"least": 0.2},
        },
        "regularizers": {"kl_covariance": {"coefficient": 1.0, "share": 0.2}},
    },
    "checkpoint_every": 1,
}


def trained(policy, problems, folder):
    return trained_on_coins(SETTINGS, policy, problems, folder)


@pytest.mark.slow
@pytest.mark.core
def test_rules_that_change_are_exact_after_a_kill_and_in_a_replay(
    guesser, coins_path, tmp_path, monkeypatch
):
    given, values, digest = trained(guesser, coins_path, tmp_path / "whole")
    assert values["schedule/algorithm.surrogate.phase"] == [0.0, 0.0, 0.5, 1.0, 1.0]
    assert values["rl/curriculum_share"] == [0.25, 0.5, 1.0, 0.5, 0.25]
    assert max(values["rl/weight_zero_fraction"]) > 0.01
    assert min(values["rl/covariance_marked"]) > 0.1
    assert max(values["rl/covariance_moved"]) > 0.0
    config, inputs, outputs = given
    context = StageContext.quiet(tmp_path / "replay", seed=3)
    assert replay(config, inputs, outputs["rollouts"], context) == digest

    since, (_, again, resumed) = killed_before_an_update(
        partial(trained, guesser, coins_path, tmp_path / "twice"), (3, 1), monkeypatch
    )
    assert since == [(3, 1), (4, 0), (4, 1)]
    assert resumed == digest
    assert again["rl/curriculum_share"] == values["rl/curriculum_share"]
