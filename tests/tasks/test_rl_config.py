"""What a recipe may not ask of reinforcement learning, each with its remedy."""

from typing import Literal

import pytest

from posttrain.learning.algorithms.regularizers.base import Regularizer
from posttrain.learning.curriculum.uniform import Uniform
from posttrain.learning.rl.producers.plain import Plain
from posttrain.methods.find import find_method, methods_of
from posttrain.operations.remarks import remarks_on_values
from posttrain.stage.errors import UserError
from posttrain.stage.schedule import NumberSchedules, Schedulable
from posttrain.stage.slots import plugged
from tasks.rl.config import RlStageConfig

FALLING = {"from": 1e-3, "to": 1e-4, "over": 4}
RAMP = {"from": 1.0, "to": 0.5, "low": 0.0, "high": 1.0}
CONSTANT = {"lr_schedule": "constant", "warmup_steps": 0}


class Sampler(Uniform, Schedulable):
    """A part with a number that is started once."""

    kind: Literal["waning"] = "waning"
    number: float = 1.0


class Producer(Plain, Schedulable):
    """The same of another slot."""

    kind: Literal["waning"] = "waning"
    number: float = 1.0


class Measuring(Regularizer):
    """Measures what no part that ships does."""

    kind: Literal["measuring"] = "measuring"
    METRICS = {"spread": "how far apart, in nats"}

    def loss(self, logprobs_BT, **_given):
        """Cost nothing."""
        return 0.0 * logprobs_BT.sum(), {"spread": logprobs_BT.max() - logprobs_BT.min()}


PARTS = {
    "regularizer": {"measuring": Measuring},
    "problem_sampler": {"waning": Sampler},
    "producer": {"waning": Producer},
}


@pytest.mark.parametrize(
    ("bad", "remedy"),
    [
        (
            {"group_size": 1},
            "rl: algorithm.advantage: baseline mean: group_size 1 .* set group_size to at least 2",
        ),
        (
            {"algorithm": {"surrogate": {"dual": 1.2}}},
            "dual 1.2 lies inside the clip range, which ends at 1.28; take a larger dual",
        ),
        ({"algorithm": "gpro"}, "there is no algorithm 'gpro'"),
        (
            {"updates": {"minibatches": 40}},
            "minibatches 40 exceeds problems_per_step 32.* lower minibatches",
        ),
        (
            {"reference": {"kind": "ema", "decay": 0.9}},
            "reference.kind is ema, but the algorithm has no kl.* add algorithm.regularizers.kl",
        ),
        ({"reference": {"kind": "ema"}}, "rl.reference.decay: a value is required here"),
        ({"reference": {"kind": "frozen", "every": 3}}, "rl.reference.*every"),
        ({"critic": {"trunk": "shared"}}, "critic is set, but the algorithm has none"),
        (
            {"algorithm": {"advantage": {"kind": "gae"}}},
            "advantage gae needs the values of a critic",
        ),
        ({"learner": {"packing": True}}, "packing is for training on rows.*micro_batch_tokens"),
        ({"learner": {"context_parallel": True}}, "parallel is for training on rows.*micro_batch"),
        ({"learner": {"early_stop": {}}}, "early_stop is for training on rows.* set stop"),
        ({"learner": {"lora": {"save": "adapter"}}}, "lora.save adapter .* set it to merged"),
        ({"learner": {"lora": {"dropout": 0.1}}}, "lora.dropout would make .* set it to 0"),
        (
            {
                "algorithm": {"regularizers": {"kl": {"coefficient": 0.1}}},
                "reference": {"kind": "ema", "decay": 0.9},
                "learner": {"lora": {}},
            },
            "follows whole weights, but learner.lora trains adapters.* leave lora out",
        ),
        (
            {"algorithm": {"advantage": {"kind": "turns", "like": "state"}}},
            "algorithm.advantage: turns needs states .* take another kind",
        ),
        ({"staleness": 120}, "staleness 120 is not below steps 120.* lower staleness"),
        ({"draw": {"sources": {"a": 0.0}}}, "the share of source 'a' is 0.0.* positive"),
        (
            {"draw": {"max_rounds": 2, "train_on": "all"}},
            "max_rounds above 1 makes up for groups without signal.* max_rounds to 1",
        ),
        (
            {"stop": {"metric": "rl/rewards"}},
            "no metric is called 'rl/rewards'; did you mean 'rl/reward'",
        ),
        (
            {"stop": {"metric": "rl/curriculum_signl"}, "draw": {"sampler": "solve_rate"}},
            "problem_sampler.solve_rate does not measure it; did you mean 'rl/curriculum_signal'",
        ),
        (
            {"stop": {"metric": "rl/curriculum_signal"}, "draw": {"sampler": "uniform"}},
            "as problem_sampler.uniform does not measure it; name another metric",
        ),
        (
            {"temperature": {**RAMP, "metric": "rl/entrpy"}},
            "temperature: no metric is called 'rl/entrpy'; did you mean 'rl/entropy'",
        ),
        (
            {
                "optimization": {"max_grad_norm": {**RAMP, "metric": "rl/curriculum_signl"}},
                "draw": {"sampler": "solve_rate"},
            },
            "max_grad_norm: .*does not measure it; did you mean 'rl/curriculum_signal'",
        ),
        (
            {"updates": {"epochs": {"from": 1, "to": 2, "over": 3}}},
            "updates.epochs: .* is read once, before .* write a plain number .*parts schedule",
        ),
        ({"draw": {"sampler": "solve_rat"}}, "rl.draw.sampler: there is no .*'solve_rate'"),
        (
            {"algorithm": "reinforce", "updates": {"epochs": 2}},
            "rl: algorithm.surrogate reinforce has no ratio, .* a step makes 2 updates;"
            " set updates.epochs and updates.minibatches to 1",
        ),
        (
            {"algorithm": "rloo", "updates": {"minibatches": 2}},
            "reinforce has no ratio, .* a step makes 2 updates",
        ),
        (
            {"algorithm": "rloo", "staleness": 1},
            "reinforce has no ratio, .* 1 steps older would bias it.* token_weights.importance",
        ),
        (
            {
                "algorithm": {"advantage": {"kind": "returns"}, "overlong": {"limit": 200}},
                "max_tokens": 72,
            },
            "rl: algorithm.overlong: the penalty starts beyond 160 tokens.* lower overlong.limit",
        ),
        (
            {"algorithm": {"advantage": "learned"}, "critic": {"trunk": "shared"}},
            "rl: critic.trunk shared .* advantage learned reads stored ones.* to own",
        ),
        (
            {"algorithm": {"advantage": "learned", "overlong": {}}, "max_tokens": 40},
            "rl: advantage learned .* algorithm.overlong would change them; set it to null",
        ),
        (
            {"optimization": {"learning_rate": 0}},
            "rl.optimization.learning_rate: input should be greater than 0",
        ),
        ({"group_sise": 4}, "unknown key; did you mean 'group_size'"),
    ],
)
def test_contradictions_are_refused_with_the_remedy(bad, remedy):
    with pytest.raises(UserError, match=remedy):
        RlStageConfig.parse(bad, where="rl")


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ({"algorithm": "gspo"}, "clip"),
        ({"algorithm": "cispo"}, "cispo"),
        ({"algorithm": "reinforce"}, None),
        ({"algorithm": "gspo", "updates": {"minibatches": 4}}, None),
        ({"algorithm": "gspo", "updates": {"epochs": 2}}, None),
        ({"algorithm": "gspo", "staleness": 1}, None),
    ],
)
def test_a_ratio_that_never_leaves_1_is_said(values, kind):
    notes = [note for note in RlStageConfig(**values).remarks() if "ratio" in note]
    assert [note.split(" never")[0] for note in notes] == ([f"surrogate {kind}"] if kind else [])


def test_an_algorithm_without_the_rest_of_its_method_is_said():
    (note,) = (
        each for each in remarks_on_values(RlStageConfig(algorithm="dapo")) if "dapo" in each
    )
    assert note == (
        "the algorithm is that of dapo, but the method of this name has draw.train_on signal,"
        " draw.max_rounds 10, group_size 16, updates.minibatches 16; say method: dapo at the top of"
        " the recipe for all of it"
    )
    whole = {
        "algorithm": "dapo",
        "draw": {"train_on": "signal", "max_rounds": 10},
        "group_size": 16,
        "updates": {"minibatches": 16},
    }
    assert [*remarks_on_values(RlStageConfig(**whole))] == []


def test_signal_without_a_baseline_is_said_to_keep_groups_of_one_outcome():
    alone = {"baseline": "none", "scale": "none"}
    values = {"algorithm": {"advantage": alone}, "draw": {"train_on": "signal"}}
    told = [*remarks_on_values(RlStageConfig(**values))]
    assert any("draw.select {kind: solved_band, least: 0.001, most: 0.999}" in t for t in told)
    for held in ({"draw": {"train_on": "all"}}, {"algorithm": "grpo"}):
        told = [*remarks_on_values(RlStageConfig(**values | held))]
        assert not any("solved_band" in each for each in told)


WHOLE = """name: {name}
title: Mine
source: {{paper: a note}}
family: pg
says: It does.
sets:
  rl:
    algorithm: {{preset: grpo, surrogate: {{high: 0.77}}}}
    inputs: {{reference: teacher.policy}}
    draw: {{select: greedy_failed}}
    producer: greedy_first
    reward: {{components: {{right: verifier, form: format}}}}
"""


def test_a_method_that_is_there_or_named_is_not_said_to_be_lacking(tmp_path):
    def notes(config):
        return [each for each in remarks_on_values(config) if "mine" in each]

    (tmp_path / "methods" / "pg").mkdir(parents=True)
    (tmp_path / "methods" / "pg" / "mine.yaml").write_text(WHOLE.format(name="mine"))
    # What is wrong in another file says nothing of this method.
    slip = WHOLE.format(name="other").replace("surrogate", "surogate")
    (tmp_path / "methods" / "pg" / "other.yaml").write_text(slip)
    (tmp_path / "methods" / "pg" / "third.yaml").write_text("titel: Third\n")
    with methods_of(tmp_path):
        values = dict(find_method("mine").method.section("rl"))
        # Kinds alone stand for parts, and what a stage reads is none of its values.
        del values["inputs"]
        assert notes(RlStageConfig.parse(values, where="rl")) == []
        values |= {"producer": "plain", "draw": {}}
        changed = RlStageConfig.parse(values, where="rl")
        (note,) = notes(changed)
        assert "has draw.select greedy_failed, producer greedy_first; say method: mine" in note
    # A recipe that names it means what lies over it.
    with methods_of(tmp_path, named="mine"):
        assert notes(changed) == []


@pytest.mark.parametrize("name", ["grpo", "ppo", "gspo", "cispo"])
def test_what_has_a_ratio_may_learn_several_times(name):
    config = {"algorithm": name, "updates": {"epochs": 2, "minibatches": 2}}
    assert RlStageConfig.parse(config, where="rl").updates_per_step == 4


def test_importance_weights_make_up_for_a_missing_ratio():
    """Of one update on older rollouts: the weight is that of the present policy."""
    weights = {"importance": {"bound": "truncate", "high": 2.0}}
    algorithm = {"preset": "rloo", "old_policy": "recomputed", "token_weights": weights}
    assert RlStageConfig.parse({"algorithm": algorithm, "staleness": 1}, where="rl").staleness == 1


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ({}, "lr_schedule linear with warmup_steps 5"),
        ({"lr_schedule": "constant"}, "lr_schedule constant with warmup_steps 5"),
        ({"warmup_steps": 0}, "lr_schedule linear with warmup_steps 0"),
    ],
)
def test_two_schedules_of_one_learning_rate_are_refused(settings, found):
    optimization = {"learning_rate": FALLING, **settings}
    with pytest.raises(
        UserError, match=f"rl.optimization: learning_rate .* {found} would multiply"
    ):
        RlStageConfig.parse({"optimization": optimization}, where="rl")


def test_a_scheduled_learning_rate_is_what_its_schedule_says():
    """Half-way from 1e-3 to 1e-4, and of the other schedule nothing is left."""
    optimization = {"learning_rate": FALLING, **CONSTANT}
    now = RlStageConfig.parse({"optimization": optimization}, where="rl").at(2).optimization
    assert now.learning_rate * now.factor(2, num_steps=400) == pytest.approx(5.5e-4)


def test_a_scheduled_rate_of_the_critic_asks_for_the_same():
    config = {"algorithm": "ppo", "critic": {"learning_rate": FALLING}}
    with pytest.raises(UserError, match=r"rl: critic.learning_rate is a schedule, .* to constant"):
        RlStageConfig.parse(config, where="rl")
    assert (
        RlStageConfig.parse(config | {"optimization": CONSTANT}, where="rl").critic.trunk == "own"
    )


@pytest.mark.parametrize(
    ("path", "config"),
    [
        ("draw.sampler", lambda part: {"draw": {"sampler": part}}),
        ("producer", lambda part: {"producer": part}),
    ],
)
def test_what_is_started_once_takes_no_schedule(path, config):
    with plugged(lambda: PARTS):
        plain = RlStageConfig.parse(config({"kind": "waning", "number": 2.0}), where="rl")
        assert "waning" in str(plain.model_dump())
        with pytest.raises(
            UserError, match=f"rl: {path}.number is a schedule, .* write a plain number"
        ):
            RlStageConfig.parse(config({"kind": "waning", "number": FALLING}), where="rl")


def test_what_a_regularizer_of_ones_own_measures_may_be_followed():
    followed = {"temperature": {**RAMP, "metric": "rl/spread"}, "stop": {"metric": "rl/spread"}}
    mine = {"kind": "measuring", "coefficient": 1.0}
    with plugged(lambda: PARTS):
        measuring = {"algorithm": {"regularizers": {"mine": mine}}}
        config = RlStageConfig.parse(followed | measuring, where="rl")
        assert NumberSchedules(config).followed == {"rl/spread"}
        with pytest.raises(UserError, match="no metric is called 'rl/spred'; did you mean 'rl/sp"):
            RlStageConfig.parse(measuring | {"stop": {"metric": "rl/spred"}}, where="rl")
    with pytest.raises(UserError, match="no metric is called 'rl/spread'"):
        RlStageConfig.parse(followed, where="rl")
