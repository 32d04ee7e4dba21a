"""Tokens and log-probabilities from logits, by hand."""

import math

import pytest
import torch

from posttrain.learning.rollouts.engines import decode
from posttrain.learning.rollouts.engines.decode import choose_tokens, greedy, scanned


@pytest.fixture(autouse=True, params=["cpu", "gpu"])
def totals(request, monkeypatch):
    """Everything holds for the running totals of either device."""
    if request.param == "gpu":
        monkeypatch.setattr(decode, "running_totals", scanned)


# softmax of these is exactly 1/2, 1/8, 1/4, 1/8.
PROBABILITIES = torch.tensor([0.5, 0.125, 0.25, 0.125])
LOGITS = PROBABILITIES.log() + 3.0


def draw_at(uniforms, **options):
    uniforms = torch.tensor(uniforms)
    tokens, logprobs = choose_tokens(LOGITS.expand(len(uniforms), -1), uniforms, **options)
    return tokens.tolist(), logprobs


def test_draw_inverts_the_cumulative_distribution():
    tokens, logprobs = draw_at([0.0, 0.49, 0.51, 0.62, 0.63, 0.87, 0.88, 0.9999999])
    assert tokens == [0, 0, 1, 1, 2, 2, 3, 3]
    torch.testing.assert_close(logprobs, PROBABILITIES[tokens].log())


def test_temperature_one_half_squares_the_probabilities():
    # 16/64, 1/64, 4/64, 1/64 of 22/64 are left: 16/22, 1/22, 4/22, 1/22.
    tokens, logprobs = draw_at([0.72, 0.74, 0.95, 0.96], temperature=0.5)
    assert tokens == [0, 1, 2, 3]
    torch.testing.assert_close(logprobs, torch.tensor([16, 1, 4, 1]).div(22).log())


def test_top_k_draws_from_the_largest_and_reports_the_uncut_logprob():
    # 1/2 and 1/4 are left, 2/3 and 1/3 of the rest.
    tokens, logprobs = draw_at([0.66, 0.67, 0.999], top_k=2)
    assert tokens == [0, 2, 2]
    torch.testing.assert_close(logprobs, torch.tensor([0.5, 0.25, 0.25]).log())


def test_top_p_keeps_the_smallest_set_that_reaches_it():
    assert draw_at([0.999], top_p=0.5)[0] == [0]
    assert draw_at([0.66, 0.67], top_p=0.51)[0] == [0, 2]
    # 0.8 needs a third token; of the two with equal mass, the first.
    assert set(draw_at([i / 50 for i in range(50)], top_p=0.8)[0]) == {0, 1, 2}


def test_a_token_without_mass_is_never_drawn():
    logits = torch.tensor([[-math.inf, 0.0, -math.inf, 0.0, -math.inf]])
    uniforms = torch.tensor([0.0, 0.25, 0.5, 0.75, 1 - 2**-23])
    tokens, logprobs = choose_tokens(logits.expand(5, -1), uniforms)
    assert tokens.tolist() == [1, 1, 3, 3, 3]
    torch.testing.assert_close(logprobs, torch.full((5,), -math.log(2)))


def test_the_largest_uniform_stays_inside_a_large_vocabulary():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(8, 50_000, generator=generator)
    tokens, logprobs = choose_tokens(logits, torch.full((8,), 1 - 2**-23))
    assert (tokens < 50_000).all()
    assert torch.isfinite(logprobs).all()


def test_greedy_takes_the_most_likely():
    tokens, logprobs = greedy(LOGITS[None])
    assert tokens.tolist() == [0]
    torch.testing.assert_close(logprobs, torch.tensor([math.log(0.5)]))


@pytest.mark.parametrize("num_values", [1, 2, 255, 256, 257, 1000, 151_936])
def test_running_totals_of_a_gpu_are_the_exact_ones(num_values):
    """Whole numbers, of which float64 adds any number in any order without rounding."""
    values = torch.randint(0, 1000, (3, num_values), generator=torch.Generator().manual_seed(1))
    assert scanned(values.float()).long().equal(values.cumsum(-1))
