"""What parts of one's own measure: it is declared, or the run says so in one sentence."""

from typing import ClassVar, Literal

import pytest

from posttrain.data.schemas import CURVE
from posttrain.data.tables import read_table
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


SOMETIMES = {
    *("rl/unjudged", "rl/rollouts_masked", "rl/episodes_failed", "rl/episodes_late", "rl/turns"),
    *("rl/delivered", "rl/branched", "rl/replayed", "rl/hinted", "rl/hint", "rl/added"),
    "rl/added_reward",
}
"""What only steps with such rollouts measure; all here are judged, end in time, have one turn."""
ALWAYS = {
    *("reward", "unjudged", "episodes_failed", "turns", "length", "truncation_rate", "entropy"),
    *("yield", "all_solved", "episodes_late", "delivered", "branched", "replayed"),
    *("hinted", "hint", "added", "added_reward"),
    *("none_solved", "rollouts_drawn", "tokens_drawn", "rounds", "rollouts_trained"),
    *("rollouts_masked", "trained_share", "staleness", "rollouts_stale", "logprob_gap"),
    *("logprob_gap_max", "logprob_gap_k3", "loss", "clip_fraction", "approx_kl"),
    *("approx_kl_k3", "ratio_mean", "grad_norm", "learning_rate"),
    *(f"reward/correct{figure}" for figure in ("", "/deviation", "/unjudged")),
}
DRIFT = {"drift", "drift_max", "drift_k3"}
WEIGHTS = {"weight_mean", "weight_zero_fraction"}
CRITIC = {f"value_{name}" for name in ("loss", "mean", "squared_error", "grad_norm")} | {
    "value_clip_fraction"
}
GAE = {"advantage": {"kind": "gae"}, "critic": {}}
BAND = {"token_weights": {"band": {"low": 0.5, "high": 2.0}}}
RECOMPUTED = {"old_policy": "recomputed"}
KL = {"coefficient": 0.1}
KL_IN_REWARD = {"coefficient": 0.1, "place": "reward"}
ENTROPY = {"coefficient": 0.01}


def regularized(**parts):
    return {"algorithm": {"regularizers": parts}}


MEASURED = [
    ({}, set()),
    ({"staleness": 1}, DRIFT),
    ({"algorithm": GAE}, CRITIC),
    ({"algorithm": BAND | RECOMPUTED}, WEIGHTS),
    (regularized(kl=KL), {"kl"}),
    (regularized(kl=KL_IN_REWARD), set()),
    (regularized(entropy=ENTROPY), set()),
    (regularized(entropy=ENTROPY | {"place": "loss"}), {"entropy_exact"}),
    (regularized(kl=KL, kl2={"kind": "kl", **KL, "estimator": "k2"}), {"kl/kl", "kl2/kl"}),
    (regularized(kl=KL, paid={"kind": "kl", **KL_IN_REWARD}), {"kl/kl"}),
    (
        {"algorithm": GAE | BAND | RECOMPUTED | regularized(kl=KL)["algorithm"], "staleness": 1},
        {*DRIFT, *CRITIC, *WEIGHTS, "kl"},
    ),
]
"""What a config measures beside `ALWAYS`, with a sampler that measures nothing."""


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
        "problem_sampler.counting did not measure rl/curriculum_num_left, which its METRICS"
        " declares; what follows it stays as it begins until a step does",
        "regularizer.spreading did not measure rl/spread, which its METRICS declares; what follows"
        " it stays as it begins until a step does",
    ]


@pytest.mark.parametrize(
    ("counted", "spread", "config"), [("num_left", "spread", FOLLOWING), ("", "", {})]
)
def test_what_is_measured_as_declared_or_not_followed_is_not_noted(notes, counted, spread, config):
    assert notes(counted, spread, **config) == []


@pytest.mark.parametrize(("config", "more"), MEASURED)
def test_a_config_declares_what_it_measures(config, more):
    given = {"draw": {"sampler": "uniform"}, **config}
    declared = RlStageConfig.parse(given, where="rl").metrics()
    assert declared.keys() == {f"rl/{name}" for name in ALWAYS | more}
    assert all(declared.values())
    by_rate = {**config, "draw": {"sampler": "solve_rate"}}
    sampled = RlStageConfig.parse(by_rate, where="rl").metrics().keys() - declared.keys()
    assert sampled == {"rl/curriculum_solve_rate", "rl/curriculum_signal"}


@pytest.mark.parametrize(("config", "more"), MEASURED)
def test_a_run_logs_what_its_config_declares(guesser, coins_path, tmp_path, config, more):
    given = SMALL | {"steps": 3, "draw": {"sampler": "uniform"}} | config
    outputs = {name: tmp_path / name for name in ("policy", "rollouts", "curve", "report")}
    parsed = RlStageConfig.parse(given, where="rl")
    context = StageContext.quiet(tmp_path / "scratch")
    run(parsed, {"policy": guesser, "problems": coins_path}, outputs, context)
    logged = set(read_table(outputs["curve"], CURVE)["metric"])
    assert logged == parsed.metrics().keys() - SOMETIMES


@pytest.mark.parametrize(
    ("metric", "config", "why"),
    [
        ("value_loss", {}, "the algorithm has no critic"),
        ("drift", {}, "staleness is 0"),
        ("weight_mean", {}, "the algorithm has no token_weights"),
        ("kl", {}, "the algorithm has no regularizer of kind kl"),
        ("kl", regularized(kl=KL_IN_REWARD), "regularizer.kl does not measure it as it is set"),
        ("entropy_exact", regularized(entropy=ENTROPY), "regularizer.entropy does not measure it"),
        ("kl", regularized(kl=KL, kl2={"kind": "kl", **KL}), "did you mean 'rl/kl/kl'"),
    ],
)
def test_what_is_not_measured_is_followed_by_nothing(metric, config, why):
    number = {**RAMP, "metric": f"rl/{metric}"}
    for field, value in (("stop", {"metric": f"rl/{metric}"}), ("temperature", number)):
        with pytest.raises(UserError, match=f"rl: {field}.*'rl/{metric}'.*{why}"):
            RlStageConfig.parse(config | {field: value}, where="rl")


class Other(Spreading):
    """Declares what another kind declares."""

    kind: Literal["other"] = "other"


@pytest.mark.parametrize("name", ["loss", "clip_fraction", "logprob_gap_max", "seconds_learning"])
def test_a_part_may_not_measure_under_a_name_of_the_learner(monkeypatch, name):
    monkeypatch.setattr(Spreading, "METRICS", {name: "something else"})
    mine = regularized(mine={"kind": "spreading", "coefficient": 1})
    with plugged(lambda: PARTS):
        sentence = f"rl: regularizer.spreading measures rl/{name}, and so does the learner; rename"
        with pytest.raises(UserError, match=sentence):
            RlStageConfig.parse(mine, where="rl")


def test_two_parts_may_not_measure_under_one_name(monkeypatch):
    kinds = {"spreading": Spreading, "other": Other}
    both = regularized(**{name: {"kind": name, "coefficient": 1} for name in kinds})
    with plugged(lambda: PARTS | {"regularizer": kinds}):
        with pytest.raises(UserError, match="measures rl/spread, and so does regularizer"):
            RlStageConfig.parse(both, where="rl")
        monkeypatch.setattr(Other, "METRICS", {"curriculum_num_left": "of the sampler"})
        counting = {"draw": {"sampler": "counting"}}
        with pytest.raises(UserError, match="counting measures rl/curriculum_num_left, and so do"):
            RlStageConfig.parse(both | counting, where="rl")
