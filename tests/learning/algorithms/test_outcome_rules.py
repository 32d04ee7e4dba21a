"""Settings of successes and failures apart, and phrases that right answers share; by hand."""

from math import e, exp, log

import pytest
import torch

from posttrain.learning.algorithms.advantages.outcome_credit import OutcomeCreditAdvantage
from posttrain.learning.algorithms.batches import PolicyBatch, RolloutBatch
from posttrain.learning.algorithms.regularizers.base import BatchShare
from posttrain.learning.algorithms.regularizers.kl_by_outcome import KlByOutcomeRegularizer
from posttrain.learning.algorithms.token_weights.long_failures import LongFailuresWeight
from posttrain.learning.algorithms.token_weights.outcome import OutcomeWeight
from posttrain.learning.algorithms.token_weights.planning_grams import PlanningGramsWeight
from posttrain.learning.maths.gae import outcome_loss


def rollouts(rewards, lengths, *, group=None, **columns):
    mask_BT = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return RolloutBatch(
        rewards_B=torch.tensor(rewards, dtype=torch.float64),
        group_B=torch.tensor(group or [0] * len(rewards)),
        mask_BT=mask_BT,
        **columns,
    )


def test_each_side_is_averaged_over_its_own_tokens():
    """Of 10 tokens 2 are right: 5 each times 1, and 10 / 8 each times 0.4."""
    weights_BT = OutcomeWeight(right=1.0, wrong=0.4).of_generation(
        rollouts([1.0, 0.0, 0.0], [2, 5, 3]), torch.zeros(3, 1)
    )
    torch.testing.assert_close(weights_BT[:, 0], torch.tensor([5.0, 0.5, 0.5]))
    alone_BT = OutcomeWeight(right=3.0).of_generation(rollouts([1.0], [4]), torch.zeros(1, 1))
    assert alone_BT.tolist() == [[3.0]]


def test_a_wrong_answer_longer_than_the_right_ones_counts_more():
    """The right ones have 2 and 4 tokens, 3 on average; wrong ones of 5, 1, and without a peer."""
    given = rollouts([1.0, 1.0, 0.0, 0.0, 0.0], [2, 4, 5, 1, 9], group=[3, 3, 3, 3, 8])
    weights_BT = LongFailuresWeight(base=2.0).of_generation(given, torch.zeros(5, 1))
    assert weights_BT[:, 0].tolist() == [1.0, 1.0, 1.75, 1.0, 1.0]


def test_right_answers_to_hard_problems_are_held_less():
    given = rollouts([1.0, 0.0, 0.0, 0.0, 1.0], [1, 2, 1, 1, 1], group=[0, 0, 0, 0, 1])
    advantages_BT = torch.tensor([[1.5], [-0.5], [-0.5], [-0.5], [0.0]])
    part = KlByOutcomeRegularizer(coefficient=0.5)
    marks_BT = part.marks(given, advantages_BT)
    assert marks_BT.shape == (5, 2)
    assert marks_BT[:, 0].tolist() == pytest.approx([1 - exp(-e / 4), 1, 1, 1, 1])
    logprobs_BT = torch.tensor([[log(0.5)], [log(0.5)]])
    mask_BT = torch.ones(2, 1, dtype=torch.bool)
    batch = PolicyBatch(
        mask_BT=mask_BT,
        advantages_BT=torch.zeros(2, 1),
        sampled_logprobs_BT=logprobs_BT,
        reference_logprobs_BT=torch.zeros(2, 1),
        mark_BT=torch.tensor([[0.25], [1.0]]),
    )
    loss, metrics = part.loss(
        logprobs_BT,
        log_ratio_BT=torch.zeros(2, 1),
        entropy_BT=None,
        batch=batch,
        share=BatchShare(mask_BT, "token_mean", 2.0),
    )
    # k3 = 1 / 0.5 - 1 + log 0.5 at both, weighed by 0.25 and 1.
    assert float(loss) == pytest.approx(0.5 * 1.25 * (1 + log(0.5)) / 2)
    assert float(metrics["kl_by_outcome"]) == pytest.approx(1.25 * (1 + log(0.5)) / 2)


def test_planning_tokens_are_those_of_grams_that_most_right_answers_share():
    """1 2 3 stands in both right answers; 7 7 7 in one of them and a wrong one."""
    ids_BT = torch.tensor([[1, 2, 3, 9, 0, 0], [7, 7, 7, 1, 2, 3], [7, 7, 7, 1, 2, 3]])
    given = rollouts([1.0, 1.0, 0.0], [4, 6, 6], token_ids_BT=ids_BT)
    part = PlanningGramsWeight(alpha=0.5, shortest=3, longest=3, share=0.2)
    weights_BT = part.of_generation(given, torch.tensor([[2.0], [0.0], [-1.0]]))
    assert weights_BT.tolist() == [
        [1.5, 1.5, 1.5, 1.0, 1.0, 1.0],
        [1.0] * 6,
        [1.0, 1.0, 1.0, 0.5, 0.5, 0.5],
    ]
    none_right = rollouts([0.0, 0.0, 0.0], [4, 6, 6], token_ids_BT=ids_BT)
    assert part.of_generation(none_right, torch.ones(3, 1)).eq(1).all()


def test_credit_goes_to_tokens_at_which_the_outcome_could_be_told():
    """Values of log 3 and 0: 3 / 4 right at first, and sqrt 3 to 1 after both tokens."""
    given = rollouts([1.0, 0.0], [2, 2], values_BT=torch.tensor([[log(3.0), 0.0]] * 2))
    part = OutcomeCreditAdvantage(baseline="leave_one_out", tau=0.5)
    advantages_BT, right_BT = part.estimate(
        given, rewards_B=given.rewards_B, costs=(), include_B=None
    )
    later = 2 * 3**0.5 / (1 + 3**0.5) - 1
    assert advantages_BT[0].tolist() == pytest.approx([0.5, later])
    assert advantages_BT[1].tolist() == [0.0, 0.0], "the end of the wrong one was not foreseen"
    assert right_BT.tolist() == [[1.0, 1.0], [0.0, 0.0]]


def test_the_model_of_outcomes_is_asked_once_for_a_sequence():
    """Means of 0 and of -log 3: half right, and a quarter, of one that is right and one not."""
    mask_BT = torch.tensor([[True, True], [True, False]])
    values_BT = torch.tensor([[log(3.0), -log(3.0)], [-log(3.0), 5.0]], requires_grad=True)
    loss, metrics = outcome_loss(
        values_BT,
        torch.tensor([[1.0, 1.0], [0.0, 0.0]]),
        mask_BT=mask_BT,
        aggregation="token_mean",
        denominator=3.0,
    )
    assert loss.item() == pytest.approx((2 * log(2.0) + log(4 / 3)) / 3)
    assert float(metrics["value_squared_error"]) == pytest.approx((0.25 * 2 + 1 / 16) / 3)
