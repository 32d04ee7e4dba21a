"""What parts of one's own measure: it is declared, or the run says so in one sentence."""

from typing import ClassVar, Literal

import pytest

from posttrain.learning.algorithms.regularizers.base import Regularizer
from posttrain.learning.curriculum.uniform import Uniform
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from posttrain.stage.slots import plugged
from tasks.rl.config import RlStageConfig
from tasks.rl.stage import run

RAMP = {"from": 1.0, "to": 0.5, "low": 0.0, "high": 1.0}
SMALL = {"steps": 2, "problems_per_step": 4, "group_size": 4, "max_tokens": 8}


class Counting(Uniform):
    """Declares one figure, and measures another one."""

    kind: Literal["counting"] = "counting"
    METRICS: ClassVar = {"num_left": "problems never drawn so far"}
    given: str = ""

    def start(self, pool):
        """Draw as `uniform` does, and measure what the config names."""
        stream = super().start(pool)
        stream.metrics = lambda: dict.fromkeys(self.given.split(), 2.0)
        return stream


class Spreading(Regularizer):
    """The same of a regularizer."""

    kind: Literal["spreading"] = "spreading"
    METRICS: ClassVar = {"spread": "how far apart, in nats"}
    given: str = ""

    def loss(self, logprobs_BT, **_given):
        """Cost nothing."""
        zero = 0.0 * logprobs_BT.sum()
        return zero, {name: zero.detach() for name in self.given.split()}


PARTS = {"problem_sampler": {"counting": Counting}, "regularizer": {"spreading": Spreading}}


@pytest.fixture
def notes(guesser, coins_path, tmp_path):
    """Run RL with the two parts; returns what it noted."""

    def train(counted, spread, **config):
        values = SMALL | {
            "draw": {"sampler": {"kind": "counting", "given": counted}},
            "algorithm": {
                "regularizers": {"mine": {"kind": "spreading", "coefficient": 1, "given": spread}}
            },
        }
        events = []
        outputs = {name: tmp_path / name for name in ("policy", "rollouts", "curve", "report")}
        context = StageContext(0, 1, "cpu", tmp_path / "scratch", events.append)
        with plugged(lambda: PARTS):
            parsed = RlStageConfig.parse(values | config, where="rl")
            run(parsed, {"policy": guesser, "problems": coins_path}, outputs, context)
        lines = [event["line"] for event in events if event["kind"] == "note"]
        return [line for line in lines if "measure" in line]

    return train


@pytest.mark.parametrize(
    ("counted", "spread", "sentence"),
    [
        ("num_lft", "spread", "problem_sampler.counting measures 'num_lft', which its METRICS"),
        ("num_left", "sprad", "regularizer.spreading measures 'sprad', which its METRICS does"),
    ],
)
def test_what_is_measured_and_not_declared_ends_the_run(notes, counted, spread, sentence):
    with pytest.raises(UserError, match=sentence):
        notes(counted, spread)


FOLLOWING = {
    "temperature": {**RAMP, "metric": "rl/curriculum_num_left"},
    "stop": {"metric": "rl/spread", "patience": 9},
}


def test_what_is_declared_and_followed_but_not_measured_is_noted_once(notes):
    assert notes("", "", **FOLLOWING) == [
        "problem_sampler counting did not measure rl/curriculum_num_left, which its METRICS"
        " declares; what follows it stays as it begins until a step does",
        "regularizer spreading did not measure rl/spread, which its METRICS declares; what follows"
        " it stays as it begins until a step does",
    ]


@pytest.mark.parametrize(
    ("counted", "spread", "config"), [("num_left", "spread", FOLLOWING), ("", "", {})]
)
def test_what_is_measured_as_declared_or_not_followed_is_not_noted(notes, counted, spread, config):
    assert notes(counted, spread, **config) == []
