"""Answers judged alone: set against each other, and KTO's loss over them worked out by hand."""

import math

import polars as pl
import pytest
import torch

from posttrain.data.brought import BroughtRow
from posttrain.data.brought_tables import judged_table
from posttrain.data.contexts import PromptContext
from posttrain.data.formats.forms import JudgedAnswers
from posttrain.learning.algorithms.preference import LogRatios, PreferenceAlgorithm
from posttrain.learning.models.build import build_llama
from posttrain.learning.models.load import Policy
from posttrain.learning.models.tokenizer import train_tokenizer
from posttrain.learning.preference.config import PreferenceConfig
from posttrain.learning.preference.frozen_policy import FrozenPolicy
from posttrain.learning.preference.heldout import grade
from posttrain.learning.preference.lone_answers import count_lone, encode_opposed, opposed
from posttrain.learning.training.pairwise import encode_pairs
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError

KTO = PreferenceAlgorithm(loss="kto")


def table(*rows, weights=()):
    """PAIRS of (prompt, chosen, rejected, side)."""
    weights = weights or [1.0] * len(rows)
    return judged_table(
        [
            BroughtRow("s", f"f:{n}", JudgedAnswers(p, PromptContext(), good, bad), side, weight)
            for n, ((p, good, bad, side), weight) in enumerate(zip(rows, weights, strict=True), 1)
        ]
    )


LONE = table(
    ("p1", "g1", "", "train"),
    ("p2", "g2", "", "train"),
    ("p3", "g3", "", "train"),
    ("p4", "", "b4", "train"),
    ("p5", "g5", "", "heldout"),
    ("p6", "", "b6", "heldout"),
)


def test_good_answers_stand_against_bad_ones_of_the_same_side_of_the_split():
    made = opposed(LONE, KTO, where="preference")
    columns = ("prompt", "chosen", "rejected_prompt", "rejected", "split")
    # The one bad answer is taken three times, so that both labels weigh the same.
    assert set(made.select(columns).rows()) == {
        ("p1", "g1", "p4", "b4", "train"),
        ("p2", "g2", "p4", "b4", "train"),
        ("p3", "g3", "p4", "b4", "train"),
        ("p5", "g5", "p6", "b6", "heldout"),
    }
    assert count_lone(LONE) == 6


def test_pairs_with_both_sides_stay_as_they_are():
    pairs = table(("p", "g", "b", "train"))
    assert opposed(pairs, PreferenceAlgorithm(), where="preference") is pairs
    made = opposed(pl.concat([pairs, LONE]), KTO, where="preference")
    assert made.filter(prompt="p").select("rejected_prompt", "rejected").rows() == [("p", "b")]
    assert made.height == 5


def test_what_cannot_be_learned_from_is_refused():
    with pytest.raises(
        UserError,
        match="6 of 6 pairs are answers judged alone, and the loss"
        " sigmoid compares two answers to one prompt; take algorithm: kto",
    ):
        opposed(LONE, PreferenceAlgorithm(), where="preference")  # fmt: skip
    with pytest.raises(UserError, match="there is no bad answer among the train rows"):
        opposed(table(("p", "g", "", "train")), KTO, where="preference")
    uneven = table(("p", "g", "", "train"), ("q", "", "b", "train"), weights=(1.0, 2.0))
    with pytest.raises(UserError, match="judged alone have different weights"):
        opposed(uneven, KTO, where="preference")


@pytest.fixture
def policy():
    tokenizer = train_tokenizer([f"p{n} g{n} b{n}" for n in range(9)], vocab_size=280)
    return Policy(build_llama(tokenizer, hidden=16, layers=1, heads=2, seed=0), tokenizer)


def test_each_answer_stands_behind_its_own_prompt(policy, tmp_path):
    pairs = opposed(LONE.filter(split="train"), KTO, where="preference").sort("chosen")
    options = {
        "config": PreferenceConfig(algorithm=KTO),
        "context": StageContext.quiet(tmp_path),
        "where": "preference",
    }
    rows = encode_opposed(policy, pairs, **options)
    decoded = [[policy.tokenizer.decode(row.ids) for row in side] for side in rows.sides]
    assert decoded == [
        ["<bos>p1\ng1<eos>", "<bos>p2\ng2<eos>", "<bos>p3\ng3<eos>"],
        ["<bos>p4\nb4<eos>"] * 3,
    ]
    # Without lone answers it is what it always was.
    both = table(("p1", "g1", "b1", "train"))
    assert encode_opposed(policy, both, **options) == encode_pairs(policy, both, **options)


def test_the_loss_is_a_mean_over_answers_whatever_they_answer():
    # beta 0.5, point 0: a good answer with log-ratio 1 costs 1 - sigmoid(0.5), a bad one with
    # log-ratio -2 costs 1 - sigmoid(1), and the mean of both is the loss.
    algorithm = PreferenceAlgorithm(loss="kto", beta=0.5)
    ratios = LogRatios(torch.tensor([1.0]), torch.tensor([-2.0]), torch.zeros(()), 1.0)
    loss, _ = algorithm.pair_loss(ratios)
    costs = [1 - 1 / (1 + math.exp(-0.5)), 1 - 1 / (1 + math.exp(-1.0))]
    assert float(loss) == pytest.approx(sum(costs) / 2)


def test_answers_to_two_prompts_are_in_no_accuracy(policy, tmp_path):
    config = PreferenceConfig(algorithm=KTO)
    options = {"config": config, "context": StageContext.quiet(tmp_path), "where": "preference"}

    def graded(pairs):
        pairs = opposed(pairs.filter(split="train"), KTO, where="preference")
        rows = encode_opposed(policy, pairs, **options)
        initial = FrozenPolicy.of(policy.model)
        return grade(policy.model, initial, rows, pairs, config=config, scratch=tmp_path)

    alone = graded(LONE)
    assert (alone["num_heldout_pairs"], alone["num_compared_pairs"]) == (3, 0)
    assert not [name for name in alone if "accuracy" in name]
    # Nothing was learned, so that the one pair of one prompt is a tie, which counts half.
    mixed = graded(pl.concat([table(("p1", "g1", "b1", "train")), LONE]))
    assert (mixed["num_heldout_pairs"], mixed["num_compared_pairs"]) == (4, 1)
    assert mixed["accuracy"] == 0.5
