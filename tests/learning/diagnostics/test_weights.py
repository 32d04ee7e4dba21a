"""Diagnostics of weights and of what reward models say, by hand."""

import math

import pytest
import torch

from posttrain.learning.rollouts.diagnostics.base import Seen
from posttrain.learning.rollouts.diagnostics.one_vs_many import OneVsMany
from posttrain.learning.rollouts.diagnostics.proxy_correlation import ProxyCorrelation
from posttrain.learning.rollouts.diagnostics.representation_rank import RepresentationRank
from posttrain.learning.rollouts.diagnostics.samples import PolicySamples
from posttrain.learning.rollouts.diagnostics.weight_delta import WeightDelta
from posttrain.stage.errors import UserError


@pytest.fixture
def weights(monkeypatch):
    """Policies as tables of weights, in the place of checkpoints."""

    def of(**policies):
        module = "posttrain.learning.rollouts.diagnostics.weight_delta._weights"
        monkeypatch.setattr(module, lambda path: policies[path])
        return {name: name for name in policies}

    return of


def test_moved_weights_are_those_that_differ_in_bfloat16(weights):
    """1 + 2^-9 rounds to 1 in bfloat16, and 1 + 2^-7 does not."""
    base = {"a": torch.ones(2, 2), "b": torch.ones(4)}
    ours = {"a": torch.tensor([[1 + 2**-7, 1.0], [1.0, 1 + 2**-9]]), "b": torch.ones(4)}
    paths = weights(sft=base, rl=ours)
    found = WeightDelta().diagnose(Seen(policies=paths, reference="sft"))
    assert found.figures["rl"] == {
        "moved": 1 / 8,
        "largest_layer": 1 / 4,
        "smallest_layer": 1 / 4,
        "rank": 1.0,
    }
    fine = WeightDelta(precision="float32").diagnose(Seen(policies=paths, reference="sft"))
    assert fine.figures["rl"]["moved"] == 2 / 8


def test_overlap_of_two_seeds_stands_beside_chance(weights):
    """One moves the first two of four weights, the other the second and the third."""
    base = {"a": torch.zeros(1, 4)}
    paths = weights(
        sft=base,
        start={"a": torch.tensor([[0.0, 0.0, 0.0, 5.0]])},
        one={"a": torch.tensor([[1.0, 1.0, 0.0, 0.0]])},
        two={"a": torch.tensor([[0.0, 1.0, 1.0, 0.0]])},
    )
    seen = Seen(
        policies={name: paths[name] for name in ("start", "sft", "one")},
        repeats={"one": paths["two"]},
        reference="sft",
    )
    found = WeightDelta(parent="start").diagnose(seen)
    assert (found.figures["one"]["overlap"], found.figures["one"]["chance"]) == (0.5, 0.5)
    assert found.figures["one"]["beyond_chance"] == 0.0
    assert found.figures["sft"]["moved"] == 1 / 4
    assert found.figures.keys() == {"sft", "one"}
    with pytest.raises(UserError, match="parent 'begin' is none of the policies"):
        WeightDelta(parent="begin").diagnose(seen)


def test_models_of_another_shape_are_refused(weights):
    paths = weights(sft={"a": torch.zeros(2, 2)}, rl={"a": torch.zeros(2, 3)})
    with pytest.raises(UserError, match="'rl' has not the weights of the reference, such as a"):
        WeightDelta().diagnose(Seen(policies=paths, reference="sft"))


def test_ranks_of_known_representations(monkeypatch):
    """Two equal singular values: both ranks are 2; the third is too small to count."""
    states = {"sft": torch.diag(torch.tensor([1.0, 1.0, 0.0])), "rl": torch.eye(3)[[0, 0, 0]]}
    part = "posttrain.learning.rollouts.diagnostics.representation_rank.RepresentationRank._states"
    monkeypatch.setattr(part, lambda self, seen, name: (states[name], 0.5))
    seen = Seen(policies={"sft": "", "rl": ""}, reference="sft")
    found = RepresentationRank().diagnose(seen).figures
    assert found["sft"] == pytest.approx({"effective": 2.0, "numerical": 2.0, "neighbors": 0.5})
    assert found["rl"]["effective"] == pytest.approx(1.0)
    assert found["rl"]["kept"] == pytest.approx(0.5)


@pytest.fixture
def graded(monkeypatch):
    """Reward models as tables of rewards, on the samples of one problem or two."""

    def of(samples, **models):
        rewards = {name: torch.tensor(each, dtype=torch.float64) for name, each in models.items()}
        for part in ("one_vs_many", "proxy_correlation"):
            module = f"posttrain.learning.rollouts.diagnostics.{part}"
            monkeypatch.setattr(f"{module}.samples_by_policy", lambda seen: {"sft": samples})
            monkeypatch.setattr(f"{module}.rewards_of", lambda path, *_: rewards[path])
        return Seen(reward_models={name: name for name in models}, reference="sft")

    return of


SAMPLES = PolicySamples(
    ("p", "q"),
    (1, 1),
    (("right", "w1", "w2", "right"), ("r", "w1", "w2", "w2")),
    torch.tensor([[1.0, 0.0, 0.0, 1.0], [1.0, 0.0, 0.0, 0.0]]),
    torch.zeros(2, 4),
    (("p", ""), ("q", "")),
)


def test_one_right_answer_stands_against_many_wrong_ones(graded):
    """A good model ranks right first in both; a poor one first in p alone, third in q."""
    good = [[3.0, 1.0, 2.0, 3.0], [9.0, 1.0, 2.0, 2.0]]
    poor = [[3.0, 1.0, 2.0, 3.0], [0.0, 1.0, 2.0, 2.0]]
    found = OneVsMany(many=2, best_of=4).diagnose(graded(SAMPLES, good=good, poor=poor)).figures
    assert found["good"] == {
        "accuracy": 1.0,
        "mrr": 1.0,
        "pairs": 1.0,
        "best_of_4": 1.0,
        "problems": 2.0,
        "foretold": 1.0,
        "foretold_by_pairs": 1.0,
        "lead": 0.0,
    }
    assert found["poor"]["accuracy"] == 0.5
    assert found["poor"]["mrr"] == pytest.approx((1 + 1 / 3) / 2)
    assert found["poor"]["best_of_4"] == 0.5
    # Equal rewards are no win: the right one stands behind both.
    tied = OneVsMany(many=2, best_of=4).diagnose(graded(SAMPLES, tied=[[1.0] * 4] * 2)).figures
    assert (tied["tied"]["accuracy"], tied["tied"]["mrr"]) == (0.0, pytest.approx(1 / 3))
    # Of four equal ones the best is any: 1/2 and 1/4 are right.
    assert tied["tied"]["best_of_4"] == pytest.approx(3 / 8)


def test_too_few_wrong_answers_are_told(graded):
    with pytest.raises(UserError, match="no problem has a right sample and 3 different wrong ones"):
        OneVsMany(many=3, best_of=2).diagnose(graded(SAMPLES, one=[[0.0] * 4] * 2))


def test_a_proxy_is_held_against_what_is_right_over_all_samples(graded):
    """Right are 3 of 8, which the proxy ranks above all others.

    Ranks 0 to 7 have a mean of 3.5 and squares of 42 about it; those of two values, 5 times 2 and 3
    times 6, squares of 30. The products sum to 30, and with ranks 0, 1, 2 of the right ones to -30.
    """
    best = [[7.0, 1.0, 2.0, 6.5], [9.0, 0.0, 3.0, -float("inf")]]
    worst = [[-each for each in row] for row in best]
    seen = graded(SAMPLES, reward=best, other=worst)
    found = ProxyCorrelation().diagnose(seen).figures
    assert found == {"sft": {"correlation": pytest.approx(math.sqrt(30 / 42))}}
    turned = ProxyCorrelation(proxy="other").diagnose(seen).figures
    assert turned == {"sft": {"correlation": pytest.approx(-math.sqrt(30 / 42))}}
    with pytest.raises(UserError, match="no reward model 'rewards'; did you mean 'reward'"):
        ProxyCorrelation(proxy="rewards").diagnose(seen)


def test_a_proxy_of_one_value_correlates_with_nothing(graded):
    assert ProxyCorrelation().diagnose(graded(SAMPLES, reward=[[1.0] * 4] * 2)).figures == {}
