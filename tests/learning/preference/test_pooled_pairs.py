"""Pairs of all answers of a round: ranked by what they win in their pool, a teacher's with them."""

import polars as pl
import pytest

from posttrain.data.schemas import Completion, Problem, completions_table
from posttrain.learning.models.build import build_llama
from posttrain.learning.models.load import Policy
from posttrain.learning.models.tokenizer import train_tokenizer
from posttrain.learning.preference.config import PreferenceConfig
from posttrain.learning.preference.pooled import pooled_pairs
from posttrain.learning.rewards.components.oracles.verifier import VerifierOracle
from posttrain.learning.rewards.score import Score
from posttrain.learning.rewards.verifiers.duel import DuelVerifier
from posttrain.learning.rewards.verify import metadata_for
from posttrain.learning.rollouts.engines.base import FinishReason, Sample
from posttrain.learning.rollouts.scoring import ScoredSample

# a beats b nine times of ten, b beats c likewise, c beats a eight times of ten.
CIRCLE = DuelVerifier(matrix=((0.5, 0.9, 0.2), (0.1, 0.5, 0.9), (0.8, 0.1, 0.5)))
GAME = Problem("s", "pick 1", "", 1, "duel", metadata_for(CIRCLE))
DRAWN = {"a": (97, 7), "b": (98, 7), "c": (99, 7)}
"""What each answer's tokens were, which no tokenizer spells so."""


def answered(*texts):
    return [
        ScoredSample(
            GAME,
            Sample(GAME.id, place, DRAWN[text], (), text, FinishReason.STOP, 0),
            Score(1.0, "x"),
        )
        for place, text in enumerate(texts)
    ]


def taught(*texts, system=""):
    rows = [
        Completion(GAME, text, generator="teacher", score=1.0, verified=True, reason="x")
        for text in texts
    ]
    context = f'{{"system":"{system}"}}' if system else ""
    return completions_table(rows).with_columns(context=pl.lit(context))


def built(policy, made, teacher=None, **pairs):
    config = PreferenceConfig.parse(
        {
            "rounds": 1,
            "oracle": "verifier",
            "opponent": "policy" if teacher is None else "teacher",
            "pairs": {"per_problem": 8, **pairs},
        },
        where="preference",
    )
    given = {"generator": "policy", "teacher": teacher, "config": config, "seed": 0}
    return pooled_pairs(made, policy, **given)


def sides(pairs):
    return sorted(zip(pairs["chosen"], pairs["rejected"], strict=True))


@pytest.fixture(scope="module")
def policy():
    tokenizer = train_tokenizer(["pick 1", "a", "b", "c"], vocab_size=270)
    return Policy(build_llama(tokenizer, hidden=16, layers=1, heads=2, seed=0), tokenizer)


def test_answers_are_ranked_by_what_they_win_in_their_pool(policy):
    """Of a, a, b, c: a wins (0.5 + 0.5 + 0.9 + 0.2) / 4, b 0.4, c (0.8 + 0.8 + 0.1 + 0.5) / 4."""
    pairs = built(policy, answered("a", "a", "b", "c"), builder="best_worst")
    assert sides(pairs) == [("c", "b")]
    assert pairs.select("chosen_score", "rejected_score").rows() == [
        (pytest.approx(0.55), pytest.approx(0.4))
    ]
    assert pairs["label_prob"].to_list() == [1.0]
    assert pairs["split"].to_list() == ["train"]


def test_pairs_of_a_small_margin_are_left_out(policy):
    """a 0.525, b 0.4, c 0.55: two of the three gaps are 0.1 and more, none is 0.2."""
    wide = {"kind": "margin", "at_least": 0.1}
    made = answered("a", "a", "b", "c")
    assert sides(built(policy, made, builder=wide)) == [("a", "b"), ("c", "b")]
    assert built(policy, made, builder={**wide, "at_least": 0.2}).is_empty()


def test_a_teachers_answers_join_the_pool_and_its_ranks(policy):
    """a and c alone: a wins 0.35, c 0.65. With two b of a teacher a wins (0.5 + 0.2 + 2 0.9) / 4,
    c (0.8 + 0.5 + 2 0.1) / 4 and b (0.1 + 0.9 + 2 0.5) / 4."""
    made, margin = answered("a", "c"), {"kind": "margin", "at_least": 0.12}
    assert sides(built(policy, made, builder=margin)) == [("c", "a")]
    pairs = built(policy, made, taught("b", "b", system="You are wise."), builder=margin)
    found = {
        text: score
        for side in ("chosen", "rejected")
        for text, score in zip(pairs[side], pairs[f"{side}_score"], strict=True)
    }
    assert found == pytest.approx({"a": 0.625, "b": 0.5, "c": 0.375})
    assert sides(pairs) == [("a", "b"), ("a", "c"), ("b", "c")]
    # The policy is not asked as the teacher was.
    assert set(pairs["context"]) == {""}


def test_a_text_that_both_wrote_counts_as_the_policys_own_was_judged(policy, monkeypatch):
    asked = []
    monkeypatch.setattr(
        VerifierOracle,
        "win_rates",
        lambda _, __, texts, ___, scores: asked.append(dict(scores)) or [0.5] * len(texts),
    )
    theirs = taught("a", "b").with_columns(score=pl.Series([0.25, 0.75]))
    built(policy, answered("a"), theirs, builder="best_worst")
    assert asked == [{"a": 1.0, "b": 0.75}]


def test_what_was_drawn_keeps_its_tokens_and_a_teachers_text_is_spelled(policy):
    pairs = built(policy, answered("a"), taught("b"), builder="best_worst")
    assert sides(pairs) == [("a", "b")]
    assert pairs["chosen_tokens"].to_list() == [[97, 7]]
    [spelled] = pairs["rejected_tokens"].to_list()
    assert policy.tokenizer.decode(spelled, skip_special_tokens=True) == "b"
    assert spelled[-1] == policy.tokenizer.eos_token_id


def test_a_text_that_both_wrote_is_the_policys(policy):
    """Against it by itself there is nothing to prefer, whoever the teacher is."""
    versus = built(policy, answered("a"), taught("a"), builder="policy_vs_reference")
    assert versus.is_empty()
    versus = built(policy, answered("a"), taught("b"), builder="policy_vs_reference")
    assert sides(versus) == [("a", "b")]


def test_without_an_oracle_the_verifiers_scores_build_pairs_with_a_teacher(policy):
    config = PreferenceConfig.parse({"rounds": 1, "opponent": "teacher"}, where="preference")
    right = taught("b").with_columns(score=1.0, verified=True)
    wrong = [
        ScoredSample(each.problem, each.sample, Score(0.0, "wrong")) for each in answered("a", "c")
    ]
    given = {"generator": "policy", "teacher": right, "config": config, "seed": 0}
    assert sides(pooled_pairs(wrong, policy, **given)) == [("b", "a"), ("b", "c")]
