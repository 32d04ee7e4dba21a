"""Extended GAE: values by hand, and which tokens bear whose loss."""

import pytest
import torch

from posttrain.learning.algorithms.advantages.egae import EgaeAdvantage
from posttrain.learning.algorithms.advantages.gae import GaeAdvantage
from posttrain.learning.algorithms.batches import RolloutBatch
from posttrain.learning.algorithms.config import Algorithm, CriticConfig
from posttrain.learning.algorithms.credit_assignment import advantages


def batch(values, rewards, *, earlier=None, unfinished=None, scored=None, lengths=None):
    values_BT = torch.tensor(values, dtype=torch.float64)
    count, width = values_BT.shape
    lengths = torch.tensor(lengths or [width] * count)
    return RolloutBatch(
        rewards_B=torch.tensor(rewards, dtype=torch.float64),
        group_B=torch.arange(count),
        mask_BT=torch.arange(width) < lengths[:, None],
        truncated_B=torch.zeros(count, dtype=torch.bool),
        scored_B=torch.tensor([not each for each in unfinished or [False] * count])
        if scored is None
        else torch.tensor(scored),
        sampled_logprobs_BT=torch.zeros_like(values_BT),
        values_BT=values_BT,
        earlier_B=torch.tensor(earlier or [0] * count),
        unfinished_B=torch.tensor(unfinished or [False] * count),
    )


def found(rollouts, **settings):
    algorithm = Algorithm(advantage=EgaeAdvantage(**settings), critic=CriticConfig())
    return advantages(algorithm, rollouts)


def test_an_unfinished_answer_of_three_tokens_by_hand():
    """Values 1, 3, 2, lambda 1/2: deltas 2, -1 and, as the last value stands for the next, 0.
    A_2 = 0, A_1 = -1 + 0 = -1, A_0 = 2 - 1/2 = 3/2; with discount 1/2 the deltas are 1/2, -2 and
    -1, and A_2 = -1, A_1 = -2 - 1/4, A_0 = 1/2 - 9/16."""
    rollouts = batch([[1.0, 3.0, 2.0]], [0.0], unfinished=[True])
    assert found(rollouts, lam=0.5).advantages_BT.tolist() == [[1.5, -1.0, 0.0]]
    assert found(rollouts, lam=0.5, gamma=0.5).advantages_BT.tolist() == [[-0.0625, -2.25, -1.0]]


def test_an_answer_that_is_over_in_its_second_window_by_hand():
    """Four tokens, two of earlier: values 9, 9, 1, 2, reward 1. Deltas 1 and -1, so A = 1/2, -1;
    the critic's targets are the return, 1, at all four."""
    known = found(batch([[9.0, 9.0, 1.0, 2.0]], [1.0], earlier=[2]), lam=0.5)
    assert known.advantages_BT.tolist() == [[0.0, 0.0, 0.5, -1.0]]
    assert known.returns_BT.tolist() == [[1.0] * 4]
    assert known.bearing.policy_BT.tolist() == [[False, False, True, True]]
    assert known.bearing.critic_BT.tolist() == [[True] * 4]


def test_the_policy_learns_from_what_goes_on_and_the_critic_does_not():
    """Of a finished, an unfinished and one that nobody could judge; the last bears no loss."""
    rollouts = batch(
        [[0.0, 0.0]] * 3, [1.0, 0.0, 0.0], unfinished=[False, True, False],
        scored=[True, False, False],
    )  # fmt: skip
    known = found(rollouts)
    assert known.bearing.policy_BT.any(-1).tolist() == [True, True, False]
    assert known.bearing.critic_BT.any(-1).tolist() == [True, False, False]
    assert known.bears_loss_B.tolist() == [True, True, False]


def test_whitening_is_over_the_tokens_that_the_policy_learns_from():
    """Advantages 1/2 and -1 of the window: mean -1/4, sample deviation 3/4 root 2."""
    rollouts = batch([[9.0, 9.0, 1.0, 2.0]], [1.0], earlier=[2])
    (row,) = found(rollouts, lam=0.5, whiten="sample", whiten_epsilon=0.0).advantages_BT.tolist()
    assert row == pytest.approx([0.0, 0.0, 2**-0.5, -(2**-0.5)])


def test_the_tail_of_an_unfinished_window_bears_no_loss():
    """A tenth of a window of 20 tokens is 2, of 5 it is none; what is over has no tail."""
    rollouts = batch(
        [[0.0] * 25] * 3, [0.0, 0.0, 1.0], earlier=[5, 0, 0], unfinished=[True, True, False],
        lengths=[25, 5, 25],
    )  # fmt: skip
    taught_BT = found(rollouts, tail=0.1).bearing.policy_BT
    assert taught_BT.sum(-1).tolist() == [18, 5, 25]
    assert taught_BT[0].tolist() == [False] * 5 + [True] * 18 + [False] * 2


def test_lambda_grows_with_length_and_by_half_a_window_of_what_goes_on():
    """alpha 1/2: four tokens give 1 - 1 / 2, and of an unfinished one with a window of four six,
    which are 1 - 1 / 3."""
    values = [[0.0, 0.0, 0.0, 1.0]]
    over = found(batch(values, [1.0]), lam=0.0, alpha=0.5).advantages_BT
    assert over.tolist() == [[0.25, 0.5, 1.0, 0.0]]
    goes_on = found(batch(values, [0.0], unfinished=[True]), lam=0.0, alpha=0.5).advantages_BT
    assert goes_on[0].tolist() == pytest.approx([4 / 9, 2 / 3, 1.0, 0.0])


def test_of_whole_answers_it_is_gae_with_a_critic_by_lambda_1():
    torch.manual_seed(0)
    rollouts = batch(torch.randn(3, 5).tolist(), [1.0, 0.0, 2.0], lengths=[5, 3, 4])
    gae = Algorithm(advantage=GaeAdvantage(lam=0.7), critic=CriticConfig())
    sure = Algorithm(advantage=GaeAdvantage(lam=1.0), critic=CriticConfig())
    known = found(rollouts, lam=0.7)
    torch.testing.assert_close(known.advantages_BT, advantages(gae, rollouts).advantages_BT)
    torch.testing.assert_close(known.returns_BT, advantages(sure, rollouts).returns_BT)


def test_the_last_window_has_the_advantages_of_the_answer_drawn_whole():
    """What follows a token is the same, wherever the answer was cut before it."""
    torch.manual_seed(0)
    values = torch.randn(1, 9).tolist()
    whole = found(batch(values, [1.0]), lam=0.8).advantages_BT
    cut = found(batch(values, [1.0], earlier=[6]), lam=0.8).advantages_BT
    torch.testing.assert_close(cut[:, 6:], whole[:, 6:])
    assert not cut[:, :6].any()
