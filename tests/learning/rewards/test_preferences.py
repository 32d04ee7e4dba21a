"""Who says which of two answers is better: a game with a cycle, oracles, what is paid for it."""

import math

import pytest

from posttrain.data.schemas import Problem
from posttrain.data.sources.answer_game import AnswerGameSource
from posttrain.data.sources.base import SourceRequest
from posttrain.learning.rewards.components.base import Answers, Inquiry
from posttrain.learning.rewards.components.oracles.model import ModelOracle
from posttrain.learning.rewards.components.oracles.verifier import VerifierOracle
from posttrain.learning.rewards.components.win_rate import WinRateComponent
from posttrain.learning.rewards.verifiers.duel import DuelVerifier
from posttrain.learning.rewards.verify import VerifierCache, metadata_for
from posttrain.stage.errors import UserError

# a beats b nine times of ten, b beats c likewise, c beats a eight times of ten.
CIRCLE = DuelVerifier(matrix=((0.5, 0.9, 0.2), (0.1, 0.5, 0.9), (0.8, 0.1, 0.5)))
GAME = Problem("s", "pick 1", "", 1, "duel", metadata_for(CIRCLE))
SUM = Problem("s", "1 + 1 =", "2", 1, "exact")


def group(problem, *texts):
    size = len(texts)
    return Answers(problem, texts, lengths=(1,) * size, truncated=(False,) * size)


def rates(problem, *texts, **settings):
    return WinRateComponent(oracle=VerifierOracle(), **settings).score(
        group(problem, *texts), Inquiry(VerifierCache())
    )


def test_an_answer_is_paid_what_it_wins_against_the_others_of_its_group():
    # a against b and b; b against a and b; and a text that is no answer loses to all.
    assert rates(GAME, "a", "b", "b") == pytest.approx([0.9, 0.3, 0.3])
    assert rates(GAME, "a", "c", "what") == pytest.approx([0.6, 0.9, 0.0])


def test_what_an_answer_wins_hangs_on_who_plays_but_its_average_does_not():
    against_a, against_b = rates(GAME, "c", "a", "a")[0], rates(GAME, "c", "b", "b")[0]
    assert (against_a, against_b) == pytest.approx((0.8, 0.1))
    averages = [rates(GAME, "c", other, other, against="answers")[0] for other in ("a", "b")]
    assert averages == pytest.approx([0.45, 0.45])


def test_without_a_game_the_better_scored_answer_is_preferred():
    assert rates(SUM, "#### 2", "#### 3", "#### 3") == pytest.approx([1.0, 0.25, 0.25])


def test_a_game_is_asked_for_where_all_answers_are():
    with pytest.raises(UserError, match="is no game of answers, whose verifier is duel"):
        rates(SUM, "#### 2", "#### 3", against="answers")


@pytest.mark.parametrize(
    ("label", "wanted"),
    [
        ("preference", [0.9, 0.2, None, 0.5]),
        ("majority", [1.0, 0.0, None, None]),
        # r(a) against a, a, b, c is (0.5 + 0.5 + 0.9 + 0.2) / 4 = 0.525; r(b) is 0.4 and r(c) 0.55.
        ("win_rates", [1 / (1 + math.exp(-0.125)), 1 / (1 + math.exp(0.025)), None, 0.5]),
    ],
)
def test_pairs_are_labeled_by_preference_by_majority_or_by_win_rates(label, wanted):
    pairs = [("a", "b"), ("a", "c"), ("a", "a"), ("x", "y")]
    oracle = VerifierOracle(label=label)
    assert oracle.labels(GAME, pairs, ["a", "a", "b", "c"], {}) == pytest.approx(wanted)


class Rewards:
    """Stands for the models of a stage's ports: one whose reward is the length of what it reads."""

    asked = 0

    def reward_model(self, name):
        assert name == "long"
        return self

    def score(self, prompts, texts):
        assert [*prompts] == [SUM.prompt] * len(texts)
        self.asked += len(texts)
        return [float(len(text)) for text in texts]


def test_a_reward_model_prefers_by_the_difference_of_its_rewards():
    """Of lengths 1, 2 and 4: σ(-1), σ(1), σ(2) and σ(0); each text is scored once."""
    models = Rewards()
    oracle = ModelOracle(model="long").asking(models)
    pairs = [("a", "bb"), ("bb", "a"), ("dddd", "bb"), ("a", "a")]
    wanted = [1 / (1 + math.exp(-gap)) for gap in (-1, 1, 2, 0)]
    assert oracle.prefers(SUM, pairs, {}) == pytest.approx(wanted)
    assert models.asked == 3
    assert oracle.ports() == ("reward_models.long",)
    assert VerifierOracle().asking(models).ports() == ()
    assert oracle == ModelOracle(model="long").asking(models)


def test_an_answer_is_paid_what_a_reward_model_prefers():
    component = WinRateComponent(oracle=ModelOracle(model="long"))
    paid = component.score(group(SUM, "a", "bb", "bb"), Inquiry(VerifierCache(), models=Rewards()))
    up, down = (1 / (1 + math.exp(-gap)) for gap in (1, -1))
    assert paid == pytest.approx([down, (up + 0.5) / 2, (up + 0.5) / 2])
    assert component.ports() == ("reward_models.long",)


def test_what_could_not_be_scored_is_not_preferred():
    assert VerifierOracle().labels(SUM, [("x", "y")], ["x"], {"x": None, "y": 1.0}) == [None]


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        ({"matrix": [[0.5, 0.9, 0.2], [0.2, 0.5, 0.9], [0.8, 0.1, 0.5]]}, "must add up to 1"),
        ({"answers": ["a", "b"]}, "matrix needs 2 rows of 2 numbers"),
        ({"best": "d"}, "best is 'd', which is none of the answers"),
        ({"answers": ["a", "a", "b"]}, "answers must differ"),
    ],
)
def test_what_is_no_game_is_refused(said, complaint):
    with pytest.raises(UserError, match=complaint):
        DuelVerifier.parse(said, where="verifier")


def test_where_one_answer_is_best_it_alone_is_right():
    game = CIRCLE.model_copy(update={"best": "b"})
    found = [game.score(text, GAME) for text in ("b", " a\n", "d")]
    assert [each.correct for each in found] == [True, False, False]
    assert found[1].value == pytest.approx((0.9 + 0.2) / 2)
    assert [each.correct for each in map(CIRCLE.score, "abc", [GAME] * 3)] == [True] * 3


def test_a_game_is_posed_under_numbers_and_its_solutions_are_drawn_by_shares(tmp_path):
    source = AnswerGameSource(shares=(0.0, 3.0, 1.0))
    request = SourceRequest(7, 400, 10, 0.1, tmp_path)
    rows = source.read(request)
    assert (len(rows.heldout), len(rows.train), len(rows.solutions)) == (10, 400, 400)
    prompts = [each.prompt for each in rows.heldout + rows.train]
    assert len(set(prompts)) == 410
    texts = [each.text for each in rows.solutions]
    assert set(texts) == {"b", "c"}
    # 300 expected, with a deviation of 8.7.
    assert 265 < texts.count("b") < 335
    assert rows == source.read(request)
    with pytest.raises(UserError, match="only duel knows the answers"):
        AnswerGameSource.parse({"verifier": "exact"}, where="source")
