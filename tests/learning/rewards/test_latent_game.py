"""A game of latent strategies: clusters, payoffs among them, an equilibrium, and the labels."""

import math

import pytest
import torch

from posttrain.data.schemas import Problem
from posttrain.learning.maths.games import payoffs
from posttrain.learning.models.build import build_llama
from posttrain.learning.models.load import Policy
from posttrain.learning.models.tokenizer import train_tokenizer
from posttrain.learning.rewards.components.oracles.latent_game import LatentGameOracle
from posttrain.learning.rewards.components.oracles.registry import PAIR_ORACLES
from posttrain.learning.rewards.verifiers.duel import DuelVerifier
from posttrain.learning.rewards.verify import metadata_for
from posttrain.stage.errors import UserError

# a beats b nine times of ten, b beats c likewise, c beats a eight times of ten: an equilibrium
# plays them as 0.4 : 0.3 : 0.4, each by what the other two win of each other beyond a half.
CIRCLE = DuelVerifier(matrix=((0.5, 0.9, 0.2), (0.1, 0.5, 0.9), (0.8, 0.1, 0.5)))
GAME = Problem("s", "pick 1", "", 1, "duel", metadata_for(CIRCLE))
DRAWN = ["a"] * 2 + ["b"] * 2 + ["c"] * 6
A, B, C = 4 / 11, 3 / 11, 4 / 11


def oracle(**settings):
    return PAIR_ORACLES.parse({"kind": "latent_game", "asks": "verifier", **settings})


def test_an_answer_is_rated_by_how_much_more_often_it_is_to_be_played():
    """The policy says a, b, c 0.2, 0.2 and 0.6 of the time."""
    rates = oracle().win_rates(GAME, ["a", "c", "b", "a"], DRAWN, {})
    wanted = [math.log(A / 0.2), math.log(C / 0.6), math.log(B / 0.2)]
    assert rates == pytest.approx([*wanted, wanted[0]], abs=0.02)


def test_labels_are_those_at_whose_best_the_policy_plays_the_equilibrium():
    """σ(r(a) - r(c)) = (A / 0.2) / (A / 0.2 + C / 0.6) = 3/4, as A and C are one; of a and b
    (4 : 3) 4/7. A policy π p e^r, DPO's best at β = 1, is the equilibrium: p e^r is it already."""
    pairs = [("a", "c"), ("a", "b"), ("a", "a")]
    labels = oracle().labels(GAME, pairs, DRAWN, {})
    assert labels == [pytest.approx(0.75, abs=0.01), pytest.approx(4 / 7, abs=0.01), None]
    even = ["a"] * 4 + ["b"] * 3 + ["c"] * 4
    assert oracle().labels(GAME, pairs, even, {})[:2] == pytest.approx([0.5, 0.5], abs=0.01)


def test_counterfactual_values_tell_apart_what_an_equilibrium_plays_and_what_not():
    """What is no answer loses to all: its value is 0, that of the others 0.5."""
    rates = oracle(by="values").win_rates(GAME, ["a", "b", "c", "what"], [*DRAWN, "what"], {})
    assert rates == pytest.approx([0.5, 0.5, 0.5, 0.0], abs=0.01)


def test_what_is_never_to_be_played_counts_a_little():
    rates = oracle(least=0.02).win_rates(GAME, ["what"], [*DRAWN, "what"], {})
    assert rates == pytest.approx([math.log(0.02 * 11)], abs=1e-6)


def test_answers_that_read_alike_are_one_strategy():
    """Three answers of two strategies: those that share words are one, and played as one."""
    answers = ("we vote for Ann now", "we vote for Ann", "silence")
    duel = DuelVerifier(answers=answers, matrix=((0.5, 0.5, 0.7), (0.5, 0.5, 0.4), (0.3, 0.6, 0.5)))
    problem = Problem("s", "say", "", 1, "duel", metadata_for(duel))
    drawn = [answers[0]] * 1 + [answers[1]] * 1 + [answers[2]] * 2
    rates = oracle(strategies=2).win_rates(problem, answers, drawn, {})
    # Together the two win (0.7 + 0.4) / 2 = 0.55 against the third: always play them.
    assert rates == pytest.approx([math.log(1 / 0.5)] * 2 + [math.log(0.01 / 0.5)], abs=0.01)


def test_payoffs_by_hand():
    """Of answers 1, 2 of s (2 counts twice) and 3 of t: (0.9 + 2 * 0.3) / 3 = 0.5 against t, and
    as t's word is 1 - 0.1 and 1 - 0.7 weighed alike, the same the other way round."""
    wins = torch.tensor([[0.5, 0.6, 0.9], [0.4, 0.5, 0.3], [0.1, 0.7, 0.5]])
    weights = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0]])
    assert payoffs(wins, weights).tolist() == [pytest.approx([0.5, 0.5])] * 2
    silent = torch.full((3, 3), math.nan)
    assert payoffs(silent, weights).tolist() == [[0.5, 0.5]] * 2
    silent[0, 2] = 0.8
    # One order alone was told, and the other one is open: 0.8 and 0.5 give 0.65.
    assert payoffs(silent, weights)[0].tolist() == pytest.approx([0.5, 0.65])


def test_what_nobody_compares_is_not_rated():
    problem = Problem("s", "1 + 1 =", "2", 1, "exact")
    scores = {"2": 1.0, "3": 0.0, "x": None}
    rates = oracle().win_rates(problem, ["2", "3", "x"], ["2", "3", "x"], scores)
    assert rates[2] is None
    assert rates[0] > rates[1]


class States:
    """Stands for the models of a stage's ports: a policy by name."""

    def __init__(self, policy):
        self.policy = policy

    def reference(self, name):
        assert name == "start"
        return self.policy


def test_hidden_states_place_answers():
    """Equal texts lie at one place, as do those of a strategy each where there are enough."""
    tokenizer = train_tokenizer(["pick 1", "a", "b", "c"], vocab_size=270)
    model = build_llama(tokenizer, hidden=16, layers=1, heads=2, seed=0)
    asked = oracle(model="start").asking(States(Policy(model, tokenizer)))
    assert asked.ports() == ("references.start",)
    rates = asked.win_rates(GAME, ["a", "b", "c"], DRAWN, {})
    assert rates == pytest.approx(oracle().win_rates(GAME, ["a", "b", "c"], DRAWN, {}), abs=1e-6)


def test_it_asks_the_ports_of_the_other_oracle():
    asks = {"kind": "model", "model": "liked"}
    assert oracle(asks=asks, model="start").ports() == ("reward_models.liked", "references.start")
    assert isinstance(oracle(), LatentGameOracle)


def test_another_label_is_refused():
    from posttrain.learning.preference.config import PreferenceConfig

    wrong = {"kind": "latent_game", "asks": "verifier", "label": "majority"}
    with pytest.raises(UserError, match="label"):
        PreferenceConfig.parse({"rounds": 1, "oracle": wrong}, where="preference")
