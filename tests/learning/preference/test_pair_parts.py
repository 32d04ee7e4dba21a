"""Losses on pairs and terms beside them that are parts of their own, worked out by hand."""

import math
from types import SimpleNamespace

import pytest
import torch

from posttrain.learning.algorithms.pair_losses.base import LogRatios
from posttrain.learning.algorithms.pair_losses.contrastive import ContrastiveLoss
from posttrain.learning.algorithms.pair_losses.score_difference import ScoreDifferenceLoss
from posttrain.learning.algorithms.pair_terms.base import PairLikelihoods
from posttrain.learning.algorithms.pair_terms.own_divergence import OwnDivergence
from posttrain.learning.algorithms.preference import PreferenceAlgorithm
from posttrain.learning.maths.preference import discounted_logprobs, preference_loss
from posttrain.learning.preference.objective import batch_loss
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


def test_a_discount_counts_from_the_first_token_of_a_segment():
    """By 1/2: -1, then -2/2, then -4/4; what is before the segment or after it counts nothing."""
    logprobs_BT = torch.tensor([[-9.0, -1.0, -2.0, -4.0], [-1.0, -9.0, -2.0, -9.0]])
    mask_BT = torch.tensor([[False, True, True, True], [True, False, True, False]])
    assert discounted_logprobs(logprobs_BT, mask_BT, gamma=0.5).tolist() == [-3.0, -2.0]
    plain = discounted_logprobs(logprobs_BT, mask_BT, gamma=1.0)
    assert plain.tolist() == [-7.0, -3.0]
    empty = discounted_logprobs(logprobs_BT, torch.zeros_like(mask_BT), gamma=0.5)
    assert empty.tolist() == [0.0, 0.0]


DISCOUNTED = {"kind": "contrastive", "discount": 0.5}


@pytest.mark.parametrize("other", [{"per_token": True}, {"length_alpha": 0.5}])
def test_a_discount_weighs_a_sum_alone(other):
    with pytest.raises(UserError, match="weighs a sum over tokens by their place"):
        PreferenceAlgorithm.parse({"loss": DISCOUNTED} | other, where="algorithm")


def test_the_likelihood_that_is_added_has_no_discount():
    """A pair of two tokens a side; the chosen's own sum stays what it is without a discount."""
    found = []

    def given(_model, _tokens):
        logprobs_BT = torch.tensor([[-1.0, -2.0], [-4.0, -8.0]])
        return logprobs_BT, torch.ones(2, 2, dtype=torch.bool)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("posttrain.learning.preference.objective.batch_logprobs", given)
        for loss in ("contrastive", DISCOUNTED):
            algorithm = PreferenceAlgorithm.parse(
                {"loss": loss, "beta": 1.0, "sft_coefficient": 1.0, "sft_per_token": False},
                where="algorithm",
            )
            tokens = SimpleNamespace(pairs=None)
            batch = SimpleNamespace(
                tokens=tokens, reference_2B=torch.zeros(2), reference_point=torch.zeros(())
            )
            total, metrics = batch_loss(algorithm)(None, batch, 1.0)
            found.append((total.item(), metrics["margin"].item(), metrics["chosen_nll"].item()))
    # -3 against -12 without; -1 - 2/2 = -2 against -4 - 8/2 = -8 with. A bias of 1/2 on the worse.
    plain = 3.0 - math.log(sigmoid(-3 + 6))
    discounted = 3.0 - math.log(sigmoid(-2 + 4))
    assert found[0] == pytest.approx((plain, 9.0, 3.0))
    assert found[1] == pytest.approx((discounted, 6.0, 3.0))


def scored(chosen, rejected, gap, known=None, *, denominator=1.0):
    given = ratios(chosen, rejected, known, denominator=denominator)
    return given._replace(gap_B=torch.tensor(gap))


def test_regularized_scores_are_to_be_alike():
    """β 0.5: R 3 - 0.5 x 2 = 2 against 1 - 0.5 x (-4) = 3, so 1 / (2 x 0.5) = 1; its gradient is
    2 (-1) x (-0.5) = 1 by the chosen's log-ratio and -1 by the other's.
    """
    given = scored([2.0], [-4.0], [2.0])
    loss, metrics = ScoreDifferenceLoss().loss(given, beta=0.5)
    assert loss.item() == pytest.approx(1.0)
    slopes = torch.autograd.grad(loss, [given.chosen_B, given.rejected_B])
    assert [each.item() for each in slopes] == pytest.approx([1.0, -1.0])
    assert metrics["margin"].item() == pytest.approx(3.0)
    # At the optimum, where the log-ratios differ by gap / β, nothing is left.
    assert ScoreDifferenceLoss().loss(scored([2.0], [-2.0], [2.0]), beta=0.5)[0].item() == 0.0
    # Which one is called chosen does not matter.
    other = scored([-4.0], [2.0], [-2.0])
    assert ScoreDifferenceLoss().loss(other, beta=0.5)[0].item() == pytest.approx(1.0)
    weighed = scored(
        [2.0, 2.0], [-4.0, -2.0], [2.0, 2.0], ([3.0, 1.0], [1.0, 1.0]), denominator=4.0
    )
    assert ScoreDifferenceLoss().loss(weighed, beta=0.5)[0].item() == pytest.approx(0.75)


def test_scores_half_apart_make_it_ipo():
    chosen, rejected, beta = [0.3, -1.2], [-0.7, 0.4], 0.2
    loss, _ = ScoreDifferenceLoss().loss(
        scored(chosen, rejected, [0.5, 0.5], denominator=2.0), beta=beta
    )
    sides = torch.tensor(chosen), torch.tensor(rejected)
    ipo, _ = preference_loss(*sides, loss="ipo", beta=beta, denominator=2.0)
    assert loss.item() == pytest.approx(beta / 2 * ipo.item())


def test_on_the_policys_own_answers_its_gradient_is_that_of_the_regularized_reward():
    """Over all pairs of three answers that the policy draws: -2 times that of E[r] - β KL."""
    logits = torch.tensor([0.2, -0.5, 0.1], dtype=torch.float64, requires_grad=True)
    behind = torch.tensor([0.5, 0.2, 0.3], dtype=torch.float64).log()
    score, beta = torch.tensor([1.0, 0.0, 0.4], dtype=torch.float64), 0.3
    now = logits.log_softmax(0)
    one, other = torch.meshgrid(torch.arange(3), torch.arange(3), indexing="ij")
    one, other = one.flatten(), other.flatten()
    drawn = (now[one] + now[other]).exp().detach()
    pairs = LogRatios(
        (now - behind)[one],
        (now - behind)[other],
        torch.zeros(()),
        1.0,
        (drawn, torch.ones_like(drawn)),
        score[one] - score[other],
    )
    loss, _ = ScoreDifferenceLoss().loss(pairs, beta=beta)
    (found,) = torch.autograd.grad(loss, logits, retain_graph=True)
    gain = (now.exp() * (score - beta * (now - behind))).sum()
    (wanted,) = torch.autograd.grad(gain, logits)
    assert found.tolist() == pytest.approx((-2 * wanted).tolist())


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
