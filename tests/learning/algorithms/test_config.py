"""Settings that contradict each other are refused in one sentence that names place and remedy."""

import re

import pytest

from posttrain.learning.algorithms.check import check
from posttrain.learning.algorithms.config import Algorithm
from posttrain.learning.algorithms.presets import PRESETS, AlgorithmConfig
from posttrain.methods.find import find_method
from posttrain.stage.config import StageConfig
from posttrain.stage.errors import UserError


class Stage(StageConfig):
    """A stage with an algorithm, as `tasks.rl` is one."""

    algorithm: AlgorithmConfig = Algorithm()


def parsed(value):
    return Stage.parse({"algorithm": value}, where="rl").algorithm


CONTRADICTIONS = {
    "gae without critic": (
        {"advantage": {"kind": "gae"}},
        "rl.algorithm: advantage gae needs the values of a critic, and there is none;"
        " add a critic section, or set advantage.kind to group",
    ),
    "value loss without use": (
        {"critic": {}},
        "rl.algorithm: critic is set, but advantage group never asks it;"
        " leave critic out, or set advantage.kind to gae",
    ),
    "values of another kind": (
        {"advantage": {"kind": "outcome_credit"}, "critic": {}},
        "rl.algorithm: advantage outcome_credit reads values as outcome, but critic.target is"
        " return; set it to outcome",
    ),
    "dual inside the clip": (
        {"surrogate": {"dual": 1.1}},
        "rl.algorithm.surrogate: dual 1.1 lies inside the clip range, which ends at 1.28;"
        " take a larger dual (often 3), or leave it out",
    ),
    "a coefficient is missing": (
        {"regularizers": {"kl": {"estimator": "k2"}}},
        "rl.algorithm.regularizers.kl.coefficient: a value is required here",
    ),
    "a coefficient of 0": (
        {"regularizers": {"kl": {"coefficient": 0}}},
        "rl.algorithm.regularizers.kl.coefficient: input should be greater than 0, got 0",
    ),
    "k1 in the loss": (
        {"regularizers": {"kl": {"coefficient": 0.1, "estimator": "k1"}}},
        "rl.algorithm.regularizers.kl: estimator k1 in the loss has a gradient of 0 on average;"
        " set ratio_weighted to true, place to reward, or estimator to k2",
    ),
    "k2 times the ratio": (
        {"regularizers": {"kl": {"coefficient": 1, "estimator": "k2", "ratio_weighted": True}}},
        "rl.algorithm.regularizers.kl: estimator k2 times the ratio has the gradient of no"
        " divergence; set ratio_weighted to false, or estimator to k3",
    ),
    "a divergence with the gradient of another": (
        {"regularizers": {"kl": {"coefficient": 0.1, "estimator": "chi_squared"}}},
        "rl.algorithm.regularizers.kl: estimator chi_squared has the gradient of what it is called"
        " only in the loss and times the ratio; set place to loss and ratio_weighted to true",
    ),
    "a divergence in the reward": (
        {"regularizers": {"kl": {"coefficient": 1, "estimator": "forward", "place": "reward"}}},
        "rl.algorithm.regularizers.kl: estimator forward has the gradient of what it is called"
        " only in the loss and times the ratio; set place to loss and ratio_weighted to true",
    ),
    "a ratio in the reward": (
        {"regularizers": {"kl": {"coefficient": 0.1, "place": "reward", "ratio_weighted": True}}},
        "rl.algorithm.regularizers.kl: ratio_weighted is for a divergence in the loss, but place"
        " is reward; set ratio_weighted to false, or place to loss",
    ),
    "weights without two policies": (
        {"token_weights": {"importance": {"high": 2}}},
        "rl.algorithm: token weight importance compares the old policy with the engine, but"
        " old_policy is engine, so all weights are 1; set old_policy to recomputed or"
        " interpolated, or leave it out",
    ),
    "a truncation without a bound": (
        {"old_policy": "recomputed", "token_weights": {"importance": {}}},
        "rl.algorithm.token_weights.importance: bound truncate needs high; set it",
    ),
    "a bound that is not used": (
        {"old_policy": "recomputed", "token_weights": {"importance": {"bound": "none", "high": 2}}},
        "rl.algorithm.token_weights.importance: bound none has no high; leave it out",
    ),
    "a length that is not used": (
        {"aggregation": {"length": 9}},
        "rl.algorithm.aggregation: length is the constant of constant_length, but kind is"
        " token_mean; set kind to constant_length, or leave length out",
    ),
    "a group's spread without a group's baseline": (
        {"advantage": {"baseline": "none", "scale": "sample"}},
        "rl.algorithm.advantage: scale sample measures the spread of a group, but baseline"
        " is none; set baseline to mean or leave_one_out, or scale to none",
    ),
    "an offset that cancels": (
        {"advantage": {"offset": 0.5}},
        "rl.algorithm.advantage: offset 0.5 cancels against baseline mean;"
        " leave offset out, or set baseline to none",
    ),
    "no gradient at all": (
        {"advantage": {"positive_weight": 0, "negative_weight": 0}},
        "rl.algorithm.advantage: positive_weight and negative_weight are both 0, which"
        " leaves no gradient; set one of them above 0",
    ),
    "nothing to learn from": (
        {"advantage": {"learn_from": "negative", "negative_weight": 0}},
        "rl.algorithm.advantage: learn_from negative with negative_weight 0 leaves no gradient;"
        " set the weight above 0",
    ),
    "cispo without its low": (
        {"surrogate": {"kind": "cispo", "bound": "two_sided"}},
        "rl.algorithm.surrogate: bound two_sided needs a low, and the other bounds have none;"
        " set low with two_sided, else leave it out",
    ),
    "gmpo by tokens": (
        {"preset": "gmpo", "aggregation": {"kind": "token_mean"}},
        "rl.algorithm: surrogate gmpo has one loss per sequence;"
        " set aggregation.kind to sequence_mean_token_mean",
    ),
    "gmpo with advantages by turns": (
        {"preset": "gmpo", "advantage": {"kind": "turns"}},
        "rl.algorithm: surrogate gmpo needs one advantage per sequence; take advantage group,"
        " and an entropy or kl in the loss, or another surrogate",
    ),
    "an infinite number": (
        {"surrogate": {"high": float("inf")}},
        "rl.algorithm.surrogate.high: input should be a finite number, got inf",
    ),
    "a name that is none": (
        "gropo",
        "rl.algorithm: there is no algorithm 'gropo'; did you mean 'grpo'?",
    ),
    "a preset that is none": (
        {"preset": "ds_grpo"},
        "rl.algorithm: there is no algorithm 'ds_grpo'; did you mean 'dr_grpo'?",
    ),
    "a key that is none": (
        {"agregation": {}},
        "rl.algorithm.agregation: unknown key; did you mean 'aggregation'?",
    ),
    "a key that is none, deeper": (
        {"advantage": {"baselin": "mean"}},
        "rl.algorithm.advantage.baselin: unknown key; did you mean 'baseline'?",
    ),
    "a key of another surrogate": (
        {"surrogate": {"kind": "squared", "tau": 1, "low": 0.2}},
        "rl.algorithm.surrogate.low: unknown key",
    ),
    "a surrogate that is none": (
        {"surrogate": {"kind": "proximal"}},
        "rl.algorithm.surrogate: there is no surrogate 'proximal'; take by_phase, cispo, clip,"
        " contrastive, discriminative, gmpo, implicit_negative, linear_bound, outcome_label,"
        " regression, reinforce, sapo, squared, uniform_value, or name the module that offers it"
        " under `plugins`",
    ),
}


@pytest.mark.parametrize(("value", "sentence"), CONTRADICTIONS.values(), ids=CONTRADICTIONS)
def test_a_contradiction_is_one_sentence(value, sentence):
    with pytest.raises(UserError) as refused:
        parsed(value)
    assert str(refused.value) == sentence


UNFIT = {
    "group of one": (
        "grpo",
        {"group_size": 1},
        "rl.algorithm.advantage: baseline mean: group_size 1 makes every advantage 0, as a rollout"
        " is compared with its group; set group_size to at least 2, or baseline to none",
    ),
    "no reference": (
        "grpo",
        {"provided": {"values"}},
        "rl.algorithm.regularizers.kl: kl needs reference (the reference policy's"
        " log-probabilities), which this stage does not have; take another kind, or leave it out",
    ),
    "no value model": (
        "ppo",
        {"provided": {"rewards_reference"}},
        "rl.algorithm.advantage: gae needs values (the critic's value before each token), which"
        " this stage does not have; take another kind, or leave it out",
    ),
    "no length to divide by": (
        "dr_grpo",
        {},
        "rl.algorithm.aggregation.kind constant_length: there is no limit of tokens to divide by;"
        " set aggregation.length, or the stage's max_tokens",
    ),
    "no limit to pay for": (
        "dapo",
        {},
        "rl.algorithm.overlong: a penalty for length needs a limit of tokens;"
        " set overlong.limit, or the stage's max_tokens",
    ),
    "a limit that nothing reaches": (
        {"overlong": {"limit": 1000}},
        {"max_tokens": 100},
        "rl.algorithm.overlong: the penalty starts beyond 800 tokens, but completions end at"
        " max_tokens 100; lower overlong.limit, or leave it out",
    ),
}


@pytest.mark.parametrize(("value", "stage", "sentence"), UNFIT.values(), ids=UNFIT)
def test_an_algorithm_that_the_stage_cannot_carry_out(value, stage, sentence):
    with pytest.raises(UserError) as refused:
        check(parsed(value), where="rl.algorithm", **stage)
    assert str(refused.value) == sentence


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_fits_a_stage_that_has_everything(name):
    check(
        PRESETS[name].algorithm,
        where="rl.algorithm",
        group_size=2,
        max_tokens=72,
    )


def test_a_penalty_may_start_at_the_last_token_but_not_beyond(choose):
    # Of 125 tokens a fifth is 25: it starts beyond the 100th; of 124 beyond the 99th.
    fits, late = (choose("default", overlong={"limit": limit}) for limit in (124, 125))
    check(fits, where="rl.algorithm", max_tokens=100)
    with pytest.raises(UserError, match="starts beyond 100 tokens"):
        check(late, where="rl.algorithm", max_tokens=100)


def test_defaults_of_sections_that_are_opened_without_a_word(choose):
    critic = choose("default", advantage={"kind": "gae"}, critic={}).critic
    assert (critic.coefficient, critic.clip) == (1.0, 0.2)
    gae = choose("default", advantage={"kind": "gae"}, critic={}).advantage
    assert (gae.gamma, gae.lam, gae.whiten) == (1.0, 1.0, "none")
    overlong = choose("default", overlong={}).overlong
    assert (overlong.share, overlong.limit, overlong.factor) == (0.2, None, 1.0)
    assert overlong.buffer(100) == (100, 20)
    assert overlong.buffer(2) == (2, 1)
    assert choose("default", overlong={"share": 1.0, "limit": 1}).overlong.buffer(9) == (1, 1)


def test_gmpo_takes_an_entropy_in_the_loss_but_none_in_the_advantages(choose):
    entropy = {"coefficient": 0.1, "place": "loss"}
    assert choose("gmpo", regularizers={"entropy": entropy}).regularizers["entropy"].place == "loss"
    with pytest.raises(ValueError, match="needs one advantage per sequence"):
        choose("gmpo", regularizers={"entropy": entropy | {"place": "advantage"}})


def test_methods_without_a_group_take_a_group_of_one():
    for name in ("reinforce", "reinforce_plus_plus", "ppo"):
        check(PRESETS[name].algorithm, where="rl.algorithm", group_size=1)


def test_a_change_keeps_the_rest_of_its_section_and_another_kind_starts_anew():
    changed = parsed({"preset": "grpo", "surrogate": {"low": 0.1}, "regularizers": {"kl": None}})
    assert (changed.surrogate.low, changed.surrogate.high) == (0.1, 0.2)
    assert changed.regularizers == {}
    assert changed.advantage == PRESETS["grpo"].algorithm.advantage
    other = parsed({"preset": "gspo", "surrogate": {"kind": "clip"}})
    assert other.surrogate == PRESETS["gspo"].algorithm.surrogate
    soft = parsed({"preset": "gspo", "surrogate": {"kind": "sapo"}})
    assert (soft.surrogate.level, soft.surrogate.negative_tau) == ("token", 1.05)
    bare = parsed({"surrogate": {"low": 0.1}})
    assert bare == parsed({"preset": "default", "surrogate": {"low": 0.1}})


def test_the_default_is_the_algorithm_without_any_setting():
    assert Stage().algorithm == Algorithm() == PRESETS["default"].algorithm == parsed({})


def test_a_name_that_is_none_is_a_sentence():
    with pytest.raises(UserError, match=r"^there is no algorithm 'dappo'; did you mean 'dapo'\?$"):
        PRESETS["dappo"]


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_says_its_equation_and_its_source(name):
    told, said = PRESETS[name], find_method(name).method
    assert all(text == text.strip() and text for text in (told.equation, told.source, told.note))
    if said.like or "preset" in said.section("rl", "algorithm") or "diagnose" in said.sets:
        # It says what differs from another's, or what is measured.
        return
    # Where the advantage comes from and what the loss is; what comes before is of the episodes.
    assert any(each in told.equation for each in ("A = ", "R = ", "s_i", "δ_t", "A_t = ", "A_i = "))
    assert re.search(r"(^|\n|; |, )L\S* = ", told.equation)


PAPERS = {
    "2402.03300": {"grpo"},
    "2503.20783": {"dr_grpo"},
    "2503.14476": {"dapo"},
    "2507.18071": {"gspo", "gspo_token"},
    "2506.13585": {"cispo"},
    "2508.08221": {"lite_ppo"},
    "2602.02710": {"maxrl"},
    "2511.20347": {"sapo"},
    "2507.20673": {"gmpo"},
    "2501.12599": {"kimi"},
    "1707.06347": {"ppo"},
    "2402.14740": {"rloo"},
    "2501.03262": {"reinforce_plus_plus", "reinforce_plus_plus_baseline"},
    "2506.01347": {"nsr", "w_reinforce"},
}


def test_the_papers_that_were_looked_up_are_the_ones_that_are_named():
    sources = {name: preset.source for name, preset in PRESETS.items()}
    for paper, names in PAPERS.items():
        assert {n for n, source in sources.items() if f"arXiv {paper}" in source} == names
