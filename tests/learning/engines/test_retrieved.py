"""Ranking among identifiers: what may be said, and where the right one stands."""

import pytest
import torch

from posttrain.data.schemas import Problem
from posttrain.learning.models.load import Policy
from posttrain.learning.rollouts.engines.base import Prompt, SamplingParams
from posttrain.learning.rollouts.strategies.base import DrawnSamples
from posttrain.learning.rollouts.variants.base import DecodingBench
from posttrain.learning.rollouts.variants.retrieved import Retrieved

NAMES = ("12", "17", "3")


def test_it_says_identifiers_alone_the_likeliest_first(models, tokenizer):
    policy = Policy(models["llama"], tokenizer)
    problems = [Problem("docs", f"find {name}", name, 1, "exact") for name in NAMES]
    part = Retrieved(width=3)
    engine = part.drawn_by(DecodingBench(policy, policy, 8, problems))
    prompt = Prompt("p", tuple(tokenizer.encode("find")))
    params = part.params(SamplingParams(max_tokens=8, num_samples=2))
    found = engine.sample([prompt], params)
    assert sorted(each.text for each in found) == sorted(NAMES)
    totals = [sum(each.logprobs) for each in found]
    assert totals == sorted(totals, reverse=True)


def test_the_reciprocal_rank_by_hand():
    # Right at rank 2; at rank 1; nowhere: 1/2, 1, 0.
    right_PN = torch.tensor([[0, 1, 0], [1, 0, 0], [0, 0, 0]], dtype=torch.float64)
    drawn = DrawnSamples([[]] * 3, right_PN)
    found = Retrieved(width=3).measured(drawn, drawn, ())
    assert found["mrr"].tolist() == pytest.approx([0.5, 1.0, 0.0])
    assert found["hits_1"].tolist() == [0.0, 1.0, 0.0]
    assert found["hits"].tolist() == [1.0, 1.0, 0.0]
