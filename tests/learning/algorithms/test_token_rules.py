"""Tokens that count by entropy, divergence or probability; values worked out by hand."""

from math import exp, log

import pytest
import torch

from posttrain.learning.algorithms.advantages.entropy_modulated import EntropyModulatedAdvantage
from posttrain.learning.algorithms.batches import PolicyBatch, RolloutBatch
from posttrain.learning.algorithms.part_outputs import MeasuredPast
from posttrain.learning.algorithms.regularizers.base import BatchShare
from posttrain.learning.algorithms.regularizers.entropy_band import EntropyBandRegularizer
from posttrain.learning.algorithms.regularizers.low_probability import LowProbabilityRegularizer
from posttrain.learning.algorithms.regularizers.nucleus_entropy import NucleusEntropyRegularizer
from posttrain.learning.algorithms.token_weights.divergence import DivergenceWeight
from posttrain.learning.algorithms.token_weights.entropy import EntropyWeight
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
