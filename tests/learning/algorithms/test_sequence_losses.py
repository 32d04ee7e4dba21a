"""Losses on log-ratios of sequences: what their papers prove, by hand and by enumeration."""

import itertools
import math

import pytest
import torch

from posttrain.learning.algorithms.batches import PolicyBatch, RolloutBatch
from posttrain.learning.algorithms.regularizers.base import BatchShare
from posttrain.learning.algorithms.regularizers.kl_limit import KlLimitRegularizer
from posttrain.learning.algorithms.regularizers.sequence_chi_squared import (
    SequenceChiSquaredRegularizer,
)
from posttrain.learning.algorithms.surrogates.contrastive import ContrastiveSurrogate
from posttrain.learning.algorithms.surrogates.discriminative import DiscriminativeSurrogate
from posttrain.learning.algorithms.surrogates.implicit_negative import ImplicitNegativeSurrogate
from posttrain.learning.algorithms.surrogates.outcome_label import OutcomeLabelSurrogate
from posttrain.learning.algorithms.surrogates.uniform_value import UniformValueSurrogate
from posttrain.learning.maths.preference import preference_loss

LENGTHS = torch.tensor([3, 1, 2, 3, 2])
GROUP = torch.tensor([0, 0, 0, 1, 1])
RIGHT = torch.tensor([1.0, 0.0, 0.0, 1.0, 0.0], dtype=torch.float64)
MASK = torch.arange(3) < LENGTHS[:, None]


def numbers(seed):
    """Log-probabilities of three tokens a row."""
    generator = torch.Generator().manual_seed(seed)
    return -torch.rand(len(GROUP), 3, generator=generator, dtype=torch.float64) - 0.1


def rows(**more):
    """Two groups, of three rollouts and of two, whose advantage is whether they are right."""
    given = {
        "mask_BT": MASK,
        "advantages_BT": RIGHT[:, None],
        "sampled_logprobs_BT": numbers(0),
        "reference_logprobs_BT": numbers(1),
        "group_B": GROUP,
        "group_mean_B": torch.tensor([1 / 3] * 3 + [1 / 2] * 2, dtype=torch.float64),
        "group_deviation_B": torch.tensor([0.47] * 3 + [0.5] * 2, dtype=torch.float64),
    }
    return PolicyBatch(**given | more)


def by_rows(surrogate, logprobs, batch):
    """The loss of each row, which all of its tokens must bear alike."""
    log_ratio = torch.where(MASK, logprobs - batch.sampled_logprobs_BT, 0.0)
    loss_BT = surrogate.token_loss(logprobs, log_ratio, batch).loss_BT
    return torch.where(MASK, loss_BT, 0.0).sum(-1) / LENGTHS


def gradient(surrogate, logprobs, batch):
    leaf = logprobs.clone().requires_grad_()
    by_rows(surrogate, leaf, batch).sum().backward()
    return leaf.grad


def test_nft_on_policy_is_grpo():
    """Weighed by sqrt((1 - q) / q), the gradient at ratio 1 is A / length of a standardized A."""
    batch = rows()
    surrogate = ImplicitNegativeSurrogate(group_weight="deviation")
    found = gradient(surrogate, batch.sampled_logprobs_BT, batch)
    q = batch.group_mean_B
    standardized = (RIGHT - q) / (q * (1 - q)).sqrt()
    expected = torch.where(MASK, -standardized[:, None] / LENGTHS[:, None], 0.0)
    torch.testing.assert_close(found, expected)


def test_nft_leaves_out_groups_of_equal_rewards_and_passes_its_floor():
    alike = rows(group_deviation_B=torch.zeros(5, dtype=torch.float64))
    assert by_rows(ImplicitNegativeSurrogate(), numbers(2), alike).tolist() == [0.0] * 5
    # A wrong token that became likelier: (1 - R / 3) / (2 / 3) is below 1 and held there, so that
    # the gradient is q / (1 - q) R = R / 2, times the weight 2 / 3.
    batch = rows()
    surrogate = ImplicitNegativeSurrogate()
    logprobs = batch.sampled_logprobs_BT + math.log(1.5)
    assert by_rows(surrogate, logprobs, batch)[1] == 0.0
    assert gradient(surrogate, logprobs, batch)[1, 0].item() == pytest.approx(2 / 3 * 1.5 / 2)


def test_pacs_predicts_outcomes_by_scores_less_those_of_the_others():
    """Log-ratios of 0.6, 0 and -0.3, and of 0 and 0: logits 0.75, -0.15, -0.6 and 0, 0."""
    batch = rows()
    moved = torch.tensor([0.2, 0.0, -0.15, 0.0, 0.0], dtype=torch.float64)[:, None]
    losses = by_rows(OutcomeLabelSurrogate(), batch.sampled_logprobs_BT + moved, batch).tolist()
    weighed = [
        3 / 2 * math.log1p(math.exp(-0.75)),
        3 / 4 * math.log1p(math.exp(-0.15)),
        3 / 4 * math.log1p(math.exp(-0.6)),
        math.log(2),
        math.log(2),
    ]
    assert losses == pytest.approx(weighed)
    # The gradient of one row's loss reaches the others' scores: all of a group must be there.
    found = gradient(OutcomeLabelSurrogate(), batch.sampled_logprobs_BT, batch)
    # d/ds_0 of -w log sigmoid(+-psi): -3/4 of its own and 3/8 / 2 of each wrong one, twice.
    assert found[0, 0].item() == pytest.approx(-3 / 4 - 3 / 16 - 3 / 16)


def test_copg_contains_ipo():
    """Two rollouts paid 1/4 and -1/4: beta / 2 times IPO's loss of the first against the second."""
    beta = 0.3
    paid = torch.tensor([0.0, 0.0, 0.0, 0.25, -0.25], dtype=torch.float64)
    batch = rows(advantages_BT=paid[:, None])
    logprobs = numbers(2)
    found = by_rows(ContrastiveSurrogate(beta=beta), logprobs, batch)[3:]
    tilt = torch.where(MASK, logprobs - batch.reference_logprobs_BT, 0.0).sum(-1)
    ipo, _ = preference_loss(tilt[3:4], tilt[4:], loss="ipo", beta=beta, denominator=1)
    torch.testing.assert_close(found, (beta / 2 * ipo).expand(2).double())


def test_copg_on_policy_is_twice_rloo_with_the_divergence_in_the_reward():
    beta, batch = 0.3, rows()
    logprobs = batch.sampled_logprobs_BT
    tilt = torch.where(MASK, logprobs - batch.reference_logprobs_BT, 0.0).sum(-1)
    paid = RIGHT - beta * tilt
    others = torch.stack(
        [paid[(GROUP[i] == GROUP) & (torch.arange(5) != i)].mean() for i in range(5)]
    )
    expected = torch.where(MASK, -2 * (paid - others)[:, None], 0.0)
    torch.testing.assert_close(gradient(ContrastiveSurrogate(beta=beta), logprobs, batch), expected)


def test_copg_rests_where_the_reference_is_tilted_by_the_reward_whoever_drew():
    beta, batch = 0.5, rows()
    tilted = batch.reference_logprobs_BT + RIGHT[:, None] / beta / LENGTHS[:, None]
    assert by_rows(ContrastiveSurrogate(beta=beta), tilted, batch).tolist() == pytest.approx(
        [0.0] * 5
    )
    found = gradient(ContrastiveSurrogate(beta=beta), tilted, batch)
    assert found.abs().max().item() == pytest.approx(0.0, abs=1e-12)


def test_drpo_weighs_right_answers_among_themselves_and_ranks_them_above_wrong_ones():
    """Rewards 0.5 and 0.2 of right ones at sharpness 0.1: weights 1 and exp(-3)."""
    paid = torch.tensor([0.5, 0.2, -0.3, 0.4, 0.1], dtype=torch.float64)
    batch, logprobs = rows(advantages_BT=paid[:, None]), numbers(2)
    score = torch.where(MASK, logprobs, 0.0).sum(-1) / LENGTHS
    surrogate = DiscriminativeSurrogate(tau=2.0, sharpness=0.1)
    found = by_rows(surrogate, logprobs, batch)
    light = math.exp(-3.0)
    expected = score[2] - (score[0] + light * score[1]) / (1 + light)
    # The second group has no wrong one.
    assert found.tolist() == pytest.approx([float(expected)] * 3 + [0.0, 0.0])
    # Of two wrong ones it is tau times the log of the mean of exp(s / tau).
    batch = rows()
    found = by_rows(surrogate, logprobs, batch)
    wrong = 2 * ((score[1:3] / 2).exp().mean()).log()
    assert found[0].item() == pytest.approx(float(wrong - score[0]))
    assert gradient(surrogate, logprobs, batch).isfinite().all()


def test_a_limit_on_the_divergence_costs_nothing_within_it():
    """Groups 0.2 and 0.05 behind: (0.2 - 0.1)^2 / 2 of the first, of 3 rows in 5, times 10."""
    moved = torch.tensor([-0.2] * 3 + [-0.05] * 2, dtype=torch.float64)[:, None]
    log_ratio = torch.where(MASK, moved, 0.0)
    share = BatchShare(MASK, "sequence_mean_token_mean", 5.0)
    regularizer = KlLimitRegularizer(coefficient=10.0, limit=0.1)
    loss, metrics = regularizer.loss(
        log_ratio, log_ratio_BT=log_ratio, entropy_BT=None, batch=rows(), share=share
    )
    assert loss.item() == pytest.approx(10 * 0.005 * 3 / 5)
    assert metrics["beyond_limit"].item() == pytest.approx(6 / 11)


def uniform_values(tree):
    """Value of each choice in a binary tree of 0s and 1s, for a policy that chooses evenly."""
    if not isinstance(tree, tuple):
        return tree, []
    (left, below_left), (right, below_right) = map(uniform_values, tree)
    return (left + right) / 2, [(left, below_left), (right, below_right)]


def test_rover_greedy_on_the_uniform_policys_values_is_optimal():
    """All trees of depth three with an end of 1: the largest value leads to one."""
    for ends in itertools.product((0.0, 1.0), repeat=8):
        tree = ends
        while len(tree) > 1:
            tree = tuple(zip(tree[::2], tree[1::2], strict=True))
        value, choices = uniform_values(tree[0])
        while choices:
            value, choices = max(choices, key=lambda each: each[0])
        assert value == max(ends)


def test_rover_rests_where_log_ratios_are_the_uniform_policys_values():
    """Ends 0, 1, 1, 1 in a tree of depth two: values 1/2 and 1, then 0, 1 and 1, 1."""
    mask = torch.tensor([[True, False, True], [True, False, True]])
    said = torch.tensor([[0.5, 9.0, 1.0], [1.0, 9.0, 1.0]], dtype=torch.float64)
    # Of all choices at each place: 3/4 at the root, then 1/2 and 1.
    mean = torch.tensor([[0.75, 9.0, 0.5], [0.75, 9.0, 1.0]], dtype=torch.float64)
    paid = torch.tensor([[0.0, 0.0, 1.0], [0.0, 0.0, 1.0]], dtype=torch.float64)
    zeros = torch.zeros_like(said)
    batch = PolicyBatch(
        mask_BT=mask, advantages_BT=paid, sampled_logprobs_BT=zeros, vocabulary_ratio_BT=2 * mean
    )
    log_ratio = torch.where(mask, 2 * said, 0.0)
    losses = UniformValueSurrogate(rho=0.5).token_loss(log_ratio, log_ratio, batch).loss_BT
    assert torch.where(mask, losses, 0.0).abs().max().item() == pytest.approx(0.0, abs=1e-12)
    # Without what is ahead the first token is expected to be worth nothing.
    alone = UniformValueSurrogate(rho=0.5, ahead=0.0).token_loss(log_ratio, log_ratio, batch)
    assert alone.loss_BT[:, 0].tolist() == pytest.approx([0.25, 1.0])


def test_chi_squared_over_sequences_has_the_gradient_of_its_root():
    """By enumeration of two tokens of two: the mean of price x score, and autograd's own."""
    reference = torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.float64)
    logits = torch.tensor([0.1, 0.4, -0.2, 0.7], dtype=torch.float64, requires_grad=True)
    policy = logits.softmax(0)
    chi_squared = (policy.square() / reference).sum() - 1
    (expected,) = torch.autograd.grad(chi_squared.sqrt(), logits, retain_graph=True)
    # A generation in which each sequence stands as often as its probability says, nearly.
    counts = (policy.detach() * 20_000).round().long()
    which = torch.arange(4).repeat_interleave(counts)
    halves = torch.tensor([0.5, 0.5], dtype=torch.float64)
    batch = RolloutBatch(
        rewards_B=torch.zeros(len(which), dtype=torch.float64),
        group_B=torch.zeros(len(which), dtype=torch.long),
        mask_BT=torch.ones(len(which), 2, dtype=torch.bool),
        sampled_logprobs_BT=policy.detach().log()[which, None] * halves,
        reference_logprobs_BT=reference.log()[which, None] * halves,
    )
    cost = SequenceChiSquaredRegularizer(coefficient=1.0).token_cost(batch)
    assert cost[:, 0].abs().max() == 0
    score = torch.eye(4, dtype=torch.float64)[which] - policy.detach()
    torch.testing.assert_close((cost.sum(-1)[:, None] * score).mean(0), expected, atol=1e-3, rtol=0)


@pytest.mark.parametrize(
    ("surrogate", "changes", "sentence"),
    [
        ("outcome_label", {"aggregation": {"kind": "token_mean"}}, "one loss per sequence"),
        ("outcome_label", {"advantage": {"baseline": "mean"}}, "must be the reward itself"),
        ("implicit_negative", {"advantage": {"baseline": "none", "offset": 0.5}}, "reward itself"),
        ("contrastive", {"advantage": {"kind": "returns"}}, "one advantage per sequence"),
    ],
)
def test_what_a_loss_of_sequences_cannot_stand_in(choose, surrogate, changes, sentence):
    section = {
        "surrogate": {"kind": surrogate},
        "advantage": {"baseline": "none"},
        "aggregation": {"kind": "sequence_mean_token_mean"},
    }
    assert choose("default", **section)
    with pytest.raises(ValueError, match=sentence):
        choose("default", **(section | changes))
