"""Pairs of steps as token rows: what bears loss, where no end is learned, and the gap of values."""

import math

import polars as pl
import pytest
import torch

from posttrain.data.schemas import IDENTITY, PAIRS, with_row_ids
from posttrain.learning.algorithms.pair_losses.advantage_margin import AdvantageMarginLoss
from posttrain.learning.algorithms.pair_losses.base import LogRatios
from posttrain.learning.models.build import build_llama
from posttrain.learning.models.load import Policy
from posttrain.learning.models.tokenizer import train_tokenizer
from posttrain.learning.preference.config import PreferenceConfig
from posttrain.learning.preference.lone_answers import encode_opposed
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError


def pairs_of(*rows):
    frame = pl.DataFrame(
        [
            {
                "parents": ["a", "b"],
                "problem_id": f"p{n}",
                "source": "sums",
                "prompt": "2 + 3 =",
                "chosen": chosen,
                "rejected": rejected,
                "split": "train",
                "chosen_score": scores[0],
                "rejected_score": scores[1],
                "label_prob": 1.0,
                "rationale": "",
                "step_start": start,
                "weight": 1.0,
                "context": "",
            }
            for n, (chosen, rejected, start, scores) in enumerate(rows)
        ],
        schema={name: each for name, each in PAIRS.items() if name != "id"},
    )
    return with_row_ids(frame, IDENTITY["pairs"]).select(list(PAIRS))


@pytest.fixture(scope="module")
def encoded(tmp_path_factory):
    tokenizer = train_tokenizer(["2 + 3 =", "1\n2\n3", "4\n5\n"], vocab_size=270)
    model = build_llama(tokenizer, hidden=16, layers=1, heads=2, seed=0, max_length=64)
    policy = Policy(model, tokenizer)
    context = StageContext.quiet(tmp_path_factory.mktemp("steps"))

    def encode(pairs, **algorithm):
        config = PreferenceConfig.parse({"algorithm": algorithm}, where="preference")
        options = {"config": config, "context": context, "where": "preference"}
        return policy.tokenizer, encode_opposed(policy, pairs, **options)

    return encode


def learned(tokenizer, row):
    return tokenizer.decode(row.ids[row.start :], skip_special_tokens=False)


def test_what_is_before_a_step_bears_no_loss(encoded):
    tokenizer, rows = encoded(
        pairs_of(("1\n2\n", "1\n3", 3, (1.0, -1.0)), ("4\n", "5\n", 1, (0.5, -0.5)))
    )
    end = tokenizer.decode([tokenizer.eos_token_id])
    assert [learned(tokenizer, row) for row in rows.sides[0]] == ["2\n", "4\n"]
    # A step that ends an answer has the end token; one that goes on has none.
    assert [learned(tokenizer, row) for row in rows.sides[1]] == [f"3{end}", "5\n"]
    assert rows.facts is None


def test_whole_answers_are_as_they_were(encoded):
    tokenizer, rows = encoded(pairs_of(("1\n2\n", "1\n3", 0, (1.0, -1.0))))
    end = tokenizer.decode([tokenizer.eos_token_id])
    assert learned(tokenizer, rows.sides[0][0]) == f"1\n2\n{end}"


def test_a_loss_that_reads_scores_is_given_their_difference(encoded):
    pairs = pairs_of(("1\n", "2\n", 1, (0.5, -1.0)), ("4\n", "5\n", 1, (0.25, -0.5)))
    _, rows = encoded(pairs, loss="advantage_margin")
    assert rows.facts.gap_B.tolist() == [1.5, 0.75]
    assert rows.facts.weight_B.tolist() == [1.0, 1.0]
    assert rows.table([1]).batch([0]).pairs.gap_B.tolist() == [0.75]
    other = pairs_of(("1\n", "2\n", 1, (0.5, -0.5)), ("4\n", "5\n", 1, (0.25, -0.5)))
    assert encoded(other, loss="advantage_margin")[1].table().digest != rows.table().digest


def test_scores_that_are_missing_are_refused(encoded):
    with pytest.raises(UserError, match="the loss reads the scores of both sides"):
        encoded(pairs_of(("1\n", "2\n", 1, (0.5, None))), loss="advantage_margin")


def test_kto_compares_with_other_answers_and_no_steps(encoded):
    with pytest.raises(UserError, match="the loss kto compares with answers to other problems"):
        encoded(pairs_of(("1\n", "2\n", 1, (0.5, -0.5))), loss="kto")


def test_rounds_compare_whole_answers():
    with pytest.raises(UserError, match=r"pairs.builder steps compares beginnings of samples"):
        PreferenceConfig.parse({"rounds": 1, "pairs": {"builder": "steps"}}, where="preference")


def test_the_loss_asks_of_the_margin_the_difference_of_values():
    # β m = 0.5 x (2 - 0.4) = 0.8; a gap of 0.3 at scale 2 asks 0.6: -log σ(0.2).
    ratios = LogRatios(
        torch.tensor([2.0]), torch.tensor([0.4]), torch.zeros(()), 1.0, gap_B=torch.tensor([0.3])
    )
    total, metrics = AdvantageMarginLoss(scale=2.0).loss(ratios, beta=0.5)
    assert float(total) == pytest.approx(math.log(1 + math.exp(-0.2)), abs=1e-6)
    assert float(metrics["margin"]) == pytest.approx(0.8)
