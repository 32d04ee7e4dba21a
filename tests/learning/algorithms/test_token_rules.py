"""Tokens that count by entropy, divergence or probability; values worked out by hand."""

from math import exp, log

import pytest
import torch

from posttrain.learning.algorithms.advantages.entropy_modulated import EntropyModulatedAdvantage
from posttrain.learning.algorithms.batches import PolicyBatch, RolloutBatch
from posttrain.learning.algorithms.part_outputs import MeasuredPast
from posttrain.learning.algorithms.regularizers.base import BatchShare
from posttrain.learning.algorithms.regularizers.entropy_band import EntropyBandRegularizer
from posttrain.learning.algorithms.regularizers.kl_covariance import KlCovarianceRegularizer
from posttrain.learning.algorithms.regularizers.low_probability import LowProbabilityRegularizer
from posttrain.learning.algorithms.regularizers.nucleus_entropy import NucleusEntropyRegularizer
from posttrain.learning.algorithms.token_weights.covariance import CovarianceWeight
from posttrain.learning.algorithms.token_weights.divergence import DivergenceWeight
from posttrain.learning.algorithms.token_weights.entropy import EntropyWeight
from posttrain.learning.algorithms.token_weights.likely_by_reference import (
    LikelyByReferenceWeight,
)
from posttrain.learning.maths.entropy import nucleus_entropy

MASK_BT = torch.tensor([[True, True, True], [True, True, False]])


def rollouts(**columns):
    return RolloutBatch(
        rewards_B=torch.tensor([1.0, 0.0]),
        group_B=torch.tensor([0, 0]),
        mask_BT=MASK_BT,
        **columns,
    )


def policy_batch(mask_BT=MASK_BT, **columns):
    like_BT = torch.zeros(mask_BT.shape)
    return PolicyBatch(
        mask_BT=mask_BT,
        advantages_BT=like_BT,
        sampled_logprobs_BT=like_BT,
        **columns,
    )


def over_tokens(mask_BT=MASK_BT):
    return BatchShare(mask_BT, "token_mean", float(mask_BT.sum()))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        # Two of five tokens, each for 5 / 2 of them.
        ({"share": 0.4}, [[0.0, 2.5, 0.0], [2.5, 0.0, 0.0]]),
        # The fifth would be one token, but two have its entropy.
        ({"share": 0.2}, [[0.0, 2.5, 0.0], [2.5, 0.0, 0.0]]),
        ({"share": 0.2, "keep": "lowest"}, [[5.0, 0.0, 0.0], [0.0, 0.0, 0.0]]),
        ({"share": 1.0}, [[1.0, 1.0, 1.0], [1.0, 1.0, 0.0]]),
    ],
)
def test_a_share_of_the_tokens_is_kept_by_entropy(settings, expected):
    # The entropy at the padded place is the highest, and does not count.
    entropy_BT = torch.tensor([[0.1, 0.9, 0.5], [0.9, 0.2, 7.0]])
    given = rollouts(entropy_BT=entropy_BT)
    weights_BT = EntropyWeight(**settings).of_generation(given, torch.zeros(2, 1))
    assert weights_BT.tolist() == expected


def test_tokens_count_by_the_divergence_of_the_group_at_their_place():
    even, sure = [log(0.5), log(0.5)], [log(0.9), log(0.1)]
    # Row 0 is even and then sure; row 1 of its group is even and over, which counts as even. Row 2
    # is alone in its group: no place differs from another.
    mask_BT = torch.tensor([[True, True], [True, False], [True, True]])
    batch = policy_batch(
        mask_BT,
        log_all_NV=torch.tensor([even, sure, even, sure, sure]),
        group_B=torch.tensor([4, 4, 9]),
    )
    zeros_BT = torch.zeros(3, 2)
    weights_BT = DivergenceWeight(most=1.7).of_update(
        zeros_BT, old_logprobs_BT=zeros_BT, batch=batch
    )
    torch.testing.assert_close(weights_BT, torch.tensor([[1.0, 1.7], [1.0, 0.0], [1.0, 1.0]]))


def test_confident_turns_count_more_and_are_led_to():
    # Row 0: turns of entropy (1 + 3) / 2 = 2 and 0; row 1: one turn of 1. Scaled to 1, 0, 0.5.
    given = rollouts(
        entropy_BT=torch.tensor([[1.0, 3.0, 0.0], [0.5, 1.5, 0.0]]),
        turn_BT=torch.tensor([[0, 0, 1], [0, 0, -1]]),
    )
    part = EntropyModulatedAdvantage(scale="none", sharpness=1.0, clarity=0.2)
    found_BT, _ = part.estimate(given, rewards_B=given.rewards_B, costs=(), include_B=None)
    usual = (exp(-1.0) + 1.0 + exp(-0.5)) / 3
    first = 0.5 * exp(-1.0) / usual + 0.2  # Behind it comes a turn of scaled entropy 0.
    last, other = 0.5 / usual, -0.5 * exp(-0.5) / usual
    middle = (first + last + other) / 3
    expected = [[first - middle] * 2 + [last - middle], [other - middle] * 2 + [0.0]]
    torch.testing.assert_close(found_BT.float(), torch.tensor(expected))


def test_what_differs_is_told_before_there_are_entropies():
    given = rollouts()
    part = EntropyModulatedAdvantage(scale="none")
    found_BT, _ = part.estimate(given, rewards_B=given.rewards_B, costs=(), include_B=None)
    assert found_BT.tolist() == [[0.5], [-0.5]]


@pytest.mark.parametrize(
    ("by", "cost", "slope"),
    # 3.0 is 1.5 nats above 1.5 times the mean of 1.0. By distance, a nat costs half of its bonus.
    [("distance", 0.5 * 1.5, 0.5), ("token", 0.5, 1.0)],
)
def test_entropy_outside_of_the_band_costs(by, cost, slope):
    mask_BT = torch.tensor([[True, True]])
    entropy_BT = torch.tensor([[1.0, 3.0]], requires_grad=True)
    part = EntropyBandRegularizer(coefficient=0.1, low=0.5, high=1.5, penalty=0.5, by=by)
    loss, measured = part.loss(
        torch.zeros(1, 2),
        log_ratio_BT=torch.zeros(1, 2),
        entropy_BT=entropy_BT,
        batch=policy_batch(mask_BT, past_2=torch.tensor([9.0, 1.0])),
        share=over_tokens(mask_BT),
    )
    assert loss.item() == pytest.approx(-0.1 * (4.0 - cost) / 2)
    loss.backward()
    torch.testing.assert_close(entropy_BT.grad, torch.tensor([[-0.05, -0.05 * slope]]))
    assert {name: value.item() for name, value in measured.items()} == {
        "band_entropy": 2.0,
        "band_outside": 0.5,
    }


def test_the_nucleus_is_the_smallest_set_that_is_likely_enough():
    log_all_NV = torch.tensor([[0.2, 0.5, 0.3]]).double().log().requires_grad_()
    of_two = -(0.625 * log(0.625) + 0.375 * log(0.375))
    found_N = nucleus_entropy(log_all_NV, top_p=0.75)
    assert found_N.item() == pytest.approx(of_two)
    found_N.sum().backward()
    # dH / d log p = -q (log q + H) within the nucleus.
    slope = -0.625 * (log(0.625) + of_two)
    expected_NV = torch.tensor([[0.0, slope, -slope]]).double()
    torch.testing.assert_close(log_all_NV.grad, expected_NV)
    assert nucleus_entropy(log_all_NV, top_p=0.4).item() == 0.0


def test_entropy_of_the_nucleus_is_drawn_to_what_it_was_first():
    mask_BT = torch.tensor([[True, True]])
    even, sure = [log(0.5), log(0.5)], [log(0.99), log(0.01)]
    log_all_NV = torch.tensor([sure, even], requires_grad=True)
    part = NucleusEntropyRegularizer(coefficient=0.5, top_p=0.9, share=0.5)

    def loss(past_2):
        return part.loss(
            torch.zeros(1, 2),
            log_ratio_BT=torch.zeros(1, 2),
            entropy_BT=None,
            batch=policy_batch(mask_BT, log_all_NV=log_all_NV, past_2=past_2),
            share=over_tokens(mask_BT),
        )

    # The undecided half is the second token alone, whose entropy is log 2.
    held, measured = loss(torch.tensor([0.1, 5.0]))
    assert measured["nucleus_entropy"].item() == pytest.approx(log(2))
    assert held.item() == pytest.approx(0.5 * (log(2) - 0.1) ** 2)
    first, _ = loss(None)
    assert first.item() == 0.0


def test_unlikely_tokens_of_bad_rollouts_are_held_if_they_are_no_noise():
    part = LowProbabilityRegularizer(coefficient=2.0, share=0.5, floor=0.1)
    # Four tokens of bad rollouts, of which the two least likely are marked; row 0's third is good.
    marks_BT = part.marks(
        rollouts(sampled_logprobs_BT=torch.tensor([[-1.0, -3.0, -9.0], [-2.0, -0.5, -7.0]])),
        torch.tensor([[-1.0, -1.0, 1.0], [-1.0, -1.0, -1.0]]),
    )
    assert marks_BT.tolist() == [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]
    # 0.04 is below a tenth of 0.6: the proxy has 0.6 and 0.36, of 0.96 together.
    log_all_NV = torch.tensor([[0.6, 0.36, 0.04]]).log().expand(5, 3)
    logprobs_BT = torch.tensor([[0.6, 0.04, 0.6], [0.36, 0.36, 1.0]]).log().requires_grad_()
    loss, measured = part.loss(
        logprobs_BT,
        log_ratio_BT=torch.zeros(2, 3),
        entropy_BT=None,
        batch=policy_batch(log_all_NV=log_all_NV, mark_BT=marks_BT),
        share=over_tokens(),
    )
    # Marked are 0.04, which is noise, and 0.36, whose odds in the proxy are 1 / 0.96 as good.
    assert loss.item() == pytest.approx(2.0 * (1 / 0.96 - 1 - log(1 / 0.96)) / 5, rel=1e-4)
    assert measured["low_probability_held"].item() == pytest.approx(0.2)
    loss.backward()
    # It is drawn up: d(u - 1 - log u)/d log p = 1 - u.
    expected_BT = torch.zeros(2, 3)
    expected_BT[1, 0] = 2.0 * (1 - 1 / 0.96) / 5
    torch.testing.assert_close(logprobs_BT.grad, expected_BT, rtol=1e-4, atol=1e-7)


def test_the_past_is_the_first_value_and_the_mean_and_goes_on_after_a_restart():
    past = MeasuredPast()
    assert past.of(("a",), device="cpu") is None
    past.note({"a": 3.0, "b": 9.0}, ("a",))
    again = MeasuredPast()
    again.load_state_dict(past.state_dict())
    again.note({"a": 4.0, "b": 9.0}, ("a",))
    assert again.of(("a",), device="cpu").tolist() == [[3.0, 3.5]]
    assert again.of((), device="cpu") is None


def test_tokens_of_a_covariance_in_the_band_lose_their_loss():
    """Advantages 3, 3, 3, -2, -2 have the mean 1, log-probabilities -1, -3, -2, -4, -5 have -3.

    So the covariances are 2 (2, 0, 1) = 4, 0, 2 and -3 (-1, -2) = 3, 6.
    """
    logprobs_BT = torch.tensor([[-1.0, -3.0, -2.0], [-4.0, -5.0, 50.0]])
    ids_BT = torch.tensor([[5, 6, 7], [5, 8, 0]])
    given = rollouts(sampled_logprobs_BT=logprobs_BT, token_ids_BT=ids_BT)
    advantages_BT = torch.tensor([[3.0], [-2.0]])

    def weights(**settings):
        return CovarianceWeight(**settings).of_generation(given, advantages_BT)

    # All three of the band: 4, 2 and 3.
    everything = weights(share=1.0, low=1.0, high=5.0).tolist()
    assert everything == [[0.0, 1.0, 0.0], [0.0, 1.0, 1.0]]
    # Two fifths are two tokens, of the band's; a share of none is one.
    for share, most in ((0.4, 2), (0.0002, 1)):
        some_BT = weights(share=share, low=1.0, high=5.0)
        assert (some_BT == 0).sum() == most
        assert torch.equal(some_BT, weights(share=share, low=1.0, high=5.0))
        assert ((some_BT == 1) | (torch.tensor(everything) == 0)).all()
    assert (weights(share=1.0, low=6.0, high=9.0) == 1).all()
    with pytest.raises(ValueError, match="low 5 is not below high 5; make it so"):
        CovarianceWeight(low=5.0, high=5.0)


def test_every_token_of_the_band_has_the_same_chance():
    """Ten tokens of covariance 2.5 beside ten of it too: two are dropped of each generation."""
    mask_BT = torch.ones(2, 10, dtype=torch.bool)
    advantages_BT = torch.tensor([[1.0], [-1.0]])
    logprobs_BT = torch.tensor([[-1.0], [-6.0]]).expand(2, 10)
    counts_BT = torch.zeros(2, 10)
    for number in range(600):
        given = RolloutBatch(
            rewards_B=torch.tensor([1.0, 0.0]),
            group_B=torch.tensor([0, 0]),
            mask_BT=mask_BT,
            sampled_logprobs_BT=logprobs_BT,
            token_ids_BT=torch.arange(20).view(2, 10) + number,
        )
        counts_BT += CovarianceWeight(share=0.1).of_generation(given, advantages_BT) == 0
    assert counts_BT.sum() == 1200
    # 60 of each, within five standard deviations of sqrt(600 x 0.1 x 0.9) = 7.3.
    assert (counts_BT - 60).abs().max() < 37


def test_tokens_of_the_highest_covariance_are_held_to_the_old_policy():
    """Covariances are 4, 0, 2 and 3, 6 as above: of five tokens two fifths are those of 6 and 4."""
    logprobs_BT = torch.tensor([[-1.0, -3.0, -2.0], [-4.0, -5.0, 50.0]])
    part = KlCovarianceRegularizer(coefficient=0.5, share=0.4)
    marks_BT = part.marks(rollouts(sampled_logprobs_BT=logprobs_BT), torch.tensor([[3.0], [-2.0]]))
    assert marks_BT.tolist() == [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    one = KlCovarianceRegularizer(coefficient=0.5, share=0.002)
    few_BT = one.marks(rollouts(sampled_logprobs_BT=logprobs_BT), torch.tensor([[3.0], [-2.0]]))
    assert few_BT.tolist() == [[0.0, 0.0, 0.0], [0.0, 1.0, 0.0]]

    log_ratio_BT = torch.tensor([[-0.3, 9.0, 9.0], [0.1, 0.2, 9.0]], requires_grad=True)
    loss, measured = part.loss(
        torch.zeros(2, 3),
        log_ratio_BT=log_ratio_BT,
        entropy_BT=None,
        batch=policy_batch(mark_BT=marks_BT),
        share=over_tokens(),
    )
    # |-0.3| + |0.2| over five tokens; each pulls its own token back with a slope of 1.
    assert loss.item() == pytest.approx(0.5 * 0.5 / 5, abs=1e-5)
    (slope_BT,) = torch.autograd.grad(loss, log_ratio_BT)
    torch.testing.assert_close(slope_BT, torch.tensor([[-0.1, 0.0, 0.0], [0.0, 0.1, 0.0]]))
    assert measured["covariance_marked"].item() == pytest.approx(0.4)
    assert measured["covariance_moved"].item() == pytest.approx(0.1, abs=1e-5)


def test_where_the_policy_has_not_moved_nothing_is_pulled_back():
    log_ratio_BT = torch.full((2, 3), 1e-7, requires_grad=True)
    loss, _ = KlCovarianceRegularizer(coefficient=1.0).loss(
        torch.zeros(2, 3),
        log_ratio_BT=log_ratio_BT,
        entropy_BT=None,
        batch=policy_batch(mark_BT=torch.ones(2, 3)),
        share=over_tokens(),
    )
    assert loss.item() == 0.0
    assert not torch.autograd.grad(loss, log_ratio_BT)[0].any()


def test_tokens_that_the_reference_finds_unlikely_lose_their_loss():
    reference_BT = torch.tensor([[log(0.5), log(0.02), log(0.019)], [log(0.3), -9.0, 0.0]])
    zeros_BT = torch.zeros(2, 3)
    weights_BT = LikelyByReferenceWeight(least=0.02).of_update(
        zeros_BT, old_logprobs_BT=zeros_BT, batch=policy_batch(reference_logprobs_BT=reference_BT)
    )
    assert weights_BT.tolist() == [[True, True, False], [True, False, True]]


@pytest.mark.parametrize("size", [2, 7])
def test_what_is_likely_enough_lies_in_the_nucleus_and_of_two_tokens_is_it(size):
    """A nucleus of 0.9, by its definition, beside all tokens of 0.1 or more."""
    generator = torch.Generator().manual_seed(1)
    probs_NV = (3 * torch.randn(200, size, generator=generator, dtype=torch.float64)).softmax(-1)
    zeros_BT = torch.zeros(200, size)
    mask_BT = torch.ones(200, size, dtype=torch.bool)
    kept_NV = LikelyByReferenceWeight(least=0.1).of_update(
        zeros_BT,
        old_logprobs_BT=zeros_BT,
        batch=policy_batch(mask_BT, reference_logprobs_BT=probs_NV.log()),
    )
    likelier_NVV = probs_NV[:, None, :] > probs_NV[:, :, None]
    nucleus_NV = (likelier_NVV * probs_NV[:, None, :]).sum(-1) < 0.9
    assert (nucleus_NV | ~kept_NV).all()
    assert torch.equal(nucleus_NV, kept_NV) is (size == 2)
