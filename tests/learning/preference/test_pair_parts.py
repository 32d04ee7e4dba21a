"""Losses on pairs and terms beside them that are parts of their own, worked out by hand."""

import math

import pytest
import torch

from posttrain.learning.algorithms.pair_losses.base import LogRatios
from posttrain.learning.algorithms.pair_losses.contrastive import ContrastiveLoss
from posttrain.learning.algorithms.pair_terms.base import PairLikelihoods
from posttrain.learning.algorithms.pair_terms.own_divergence import OwnDivergence
from posttrain.learning.algorithms.preference import PreferenceAlgorithm
from posttrain.stage.errors import UserError


def ratios(chosen, rejected, known=None, *, denominator=1.0):
    sides = [torch.tensor(each, requires_grad=True) for each in (chosen, rejected)]
    known = known and tuple(map(torch.tensor, known))
    return LogRatios(*sides, torch.zeros(()), denominator, known)


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def test_a_bias_below_one_makes_the_contrast_like_what_is_in_the_data():
    """Two pairs with the same difference: the one whose two sides are likelier costs less."""
    near, far = ratios([-1.0], [-3.0]), ratios([-11.0], [-13.0])
    biased, even = ContrastiveLoss(bias=0.5), ContrastiveLoss(bias=1.0)
    assert biased.loss(near, beta=1.0)[0].item() == pytest.approx(-math.log(sigmoid(-1 + 1.5)))
    assert biased.loss(far, beta=1.0)[0].item() == pytest.approx(-math.log(sigmoid(-11 + 6.5)))
    assert even.loss(near, beta=1.0)[0].item() == pytest.approx(even.loss(far, beta=1.0)[0].item())


def test_an_unsure_contrast_is_the_expectation_over_labels_by_weight():
    given = ratios([-1.0], [-3.0], known=([2.0], [0.75]), denominator=2.0)
    loss, metrics = ContrastiveLoss(bias=0.5).loss(given, beta=1.0)
    right, wrong = -math.log(sigmoid(0.5)), -math.log(sigmoid(-3 + 0.5))
    assert loss.item() == pytest.approx(0.75 * right + 0.25 * wrong)
    assert metrics["margin"].item() == pytest.approx(2.0)


def test_the_own_divergence_has_the_gradient_of_a_divergence():
    """Of a policy over two answers, summed over both by their probabilities, it is that of KL."""
    logits = torch.tensor([0.3, -0.4], dtype=torch.float64, requires_grad=True)
    reference = torch.tensor([0.9, 0.1], dtype=torch.float64).log()
    own_B = logits.log_softmax(-1)
    zeros = torch.zeros(2, dtype=torch.float64)
    # Each answer stands for as many samples as its probability says.
    weights = own_B.detach().exp()
    pairs = PairLikelihoods(zeros, zeros, zeros, zeros, own_B, reference, 1.0, weights)
    total, metrics = OwnDivergence(coefficient=0.5).term(pairs)
    (found,) = torch.autograd.grad(total, logits, retain_graph=True)
    kl = (own_B.exp() * (own_B - reference)).sum()
    (wanted,) = torch.autograd.grad(0.5 * kl, logits)
    assert found.tolist() == pytest.approx(wanted.tolist())
    assert metrics.keys() == OwnDivergence.METRICS.keys()


def test_a_part_says_what_it_needs_and_what_it_admits():
    plain = PreferenceAlgorithm(loss="contrastive")
    assert not plain.needs_reference
    assert plain.takes_label_probs
    held = PreferenceAlgorithm(loss="contrastive", terms={"own_divergence": {"coefficient": 1.0}})
    assert held.needs_reference
    assert held.draws_own
    assert "own_kl" in held.metrics
    assert held.describe() == "contrastive β 0.1 · sums · own_divergence 1"


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        ({"loss": "contrastve"}, "no loss on pairs 'contrastve'; did you mean 'contrastive'"),
        ({"loss": {"kind": "contrastive", "bias": 2}}, r"loss\.bias: input should be less than"),
        ({"loss": "contrastive", "label_smoothing": 0.1}, "no effect on contrastive"),
        (
            {"loss": "kto", "terms": {"own_divergence": {"coefficient": 0.1}}},
            "own samples of a term stand where kto",
        ),
    ],
)
def test_what_cannot_be_is_refused(said, complaint):
    with pytest.raises(UserError, match=complaint):
        PreferenceAlgorithm.parse(said, where="preference.algorithm")
