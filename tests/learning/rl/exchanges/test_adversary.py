"""The adversary's temperature, and what its texts are paid."""

import pytest

from posttrain.learning.rewards.config import RewardStack
from posttrain.learning.rl.exchanges.adversary import Adversary, paid_attack
from posttrain.learning.rl.rollout import Rollout
from posttrain.learning.rl.several_config import SeveralConfig
from posttrain.stage.errors import UserError

ROW = Rollout(
    problem_id="p",
    source="s",
    group=0,
    episode="p/0",
    token_ids=(1, 2, 3),
    spans=(),
    logprobs=(-1.0, -2.0),
    versions=(0,),
    end="over",
    text="x",
    reward=None,
)


def test_the_temperature_falls_after_steps_in_which_enough_was_earned():
    adversary = Adversary(hottest=0.5, coldest=0.1, falls=0.25, enough=0.4)
    assert adversary.cooled(0.5, 0.39) == 0.5
    assert adversary.cooled(0.5, 0.4) == 0.25
    assert adversary.cooled(0.25, 1.0) == 0.1


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"template": "{prompt}"}, "template has no {text}"),
        ({"hottest": 0.1, "coldest": 0.2}, "coldest is 0.2, above hottest"),
        ({"policies": 3}, "exchange adversary takes 2"),
    ],
)
def test_what_cannot_be_played_is_refused(settings, told):
    with pytest.raises(UserError, match=told):
        Adversary.parse(settings, where="exchange")


@pytest.mark.parametrize(
    ("row", "reply", "truncated", "pay"),
    [
        # 1.5 nats for each of two tokens at 0.5, less what the first policy earned.
        ({}, {"reward": 1.0}, "counts", -0.25),
        ({"end": "tokens"}, {"reward": 1.0}, "counts", -0.25),
        ({"end": "tokens"}, {"reward": 1.0}, "dropped", None),
        ({"end": "failed"}, {"reward": 1.0}, "counts", None),
        ({}, {"reward": None}, "counts", None),
    ],
)
def test_what_could_not_be_judged_is_paid_nothing(row, reply, truncated, pay):
    reward = RewardStack(truncated=truncated)
    paid = paid_attack(ROW._replace(**row), ROW._replace(**reply), 0.5, reward)
    assert paid.reward == pay


@pytest.mark.parametrize("sampler", ["solve_rate", "bandit"])
def test_a_sampler_that_would_hear_of_no_answer_is_refused(sampler):
    said = {"steps": 1, "draw": {"sampler": sampler}, "exchange": {"kind": "adversary"}}
    with pytest.raises(UserError, match=f"{sampler}.* learns from answers .* take uniform"):
        SeveralConfig.parse(said, where="coevolve")
    SeveralConfig.parse(said | {"exchange": {"kind": "vote"}}, where="coevolve")
