"""Any split of a batch into micro-batches gives the one-batch gradient, for every preset."""

from types import SimpleNamespace

import pytest
import torch

from posttrain.learning.algorithms.batches import PolicyBatch
from posttrain.learning.algorithms.objective import denominator, policy_objective
from posttrain.learning.algorithms.presets import PRESETS
from posttrain.stage.schedule import at

LENGTHS = torch.tensor([7, 1, 4, 6, 2, 5])
WHOLE_GROUPS = [[[3, 5, 4], [0, 2, 1]]]
"""For a loss whose rollouts are compared with each other."""
SPLITS = [[[0], [1], [2], [3], [4], [5]], [[5, 0], [3, 1, 4], [2]], [[1, 4], [0, 2, 3, 5]]]


@pytest.fixture
def data():
    """Six rollouts of two problems, unequal in length, far from the policy that sampled them."""
    generator = torch.Generator().manual_seed(5)

    def near(values, spread):
        return values + spread * (torch.rand(6, 7, generator=generator).double() - 0.5)

    old = near(torch.full((6, 7), -1.2).double(), 1.0)
    return SimpleNamespace(
        old=old,
        new=near(old, 1.2),
        rollout=near(old, 0.3),
        reference=near(old, 0.8),
        mask=torch.arange(7) < LENGTHS[:, None],
        rewards=torch.tensor([1.0, 0.0, 0.2, 0.9, 0.0, 0.4]),
        group=torch.tensor([0, 0, 0, 1, 1, 1]),
    )


def part(batch, rows):
    """Some rows of a batch, cut to the longest of them, as a learner pads them."""
    width = int(LENGTHS[rows].max())
    columns = {
        name: None if value is None else value[rows][..., :width] if value.ndim > 1 else value[rows]
        for name, value in vars(batch).items()
        if name != "marks_KBT"
    }
    if batch.marks_KBT is not None:
        columns["marks_KBT"] = batch.marks_KBT[:, rows, :width]
    return PolicyBatch(**columns)


def accumulated(algorithm, batch, logprobs, splits):
    """Loss and gradient added up over the parts; every part is told the whole batch's count."""
    whole = sum(denominator(algorithm, part(batch, rows).mask_BT, max_tokens=7) for rows in splits)
    assert whole == denominator(algorithm, batch.mask_BT, max_tokens=7)
    leaf = logprobs.clone().requires_grad_()
    total = 0.0
    for rows in splits:
        piece = part(batch, rows)
        width = piece.mask_BT.shape[1]
        loss, _ = policy_objective(algorithm, leaf[rows][:, :width], batch=piece, denominator=whole)
        loss.backward()
        total += loss.item()
    return total, leaf.grad


# What follows has log-probabilities of drawn tokens alone; terms over whole distributions and exact
# entropies have tests of their own in test_token_rules.py and test_rl_distillation.py.
OF_DRAWN_TOKENS = [
    name
    for name in PRESETS
    if PRESETS[name].algorithm.needs.isdisjoint(
        {"distribution", "reference_divergence", "entropy_gradient"}
    )
]


@pytest.mark.parametrize("name", OF_DRAWN_TOKENS)
def test_any_split_gives_the_one_batch_gradient(batch_of, data, name):
    algorithm = at(PRESETS[name].algorithm, 0, {})
    batch = batch_of(algorithm, data, weights_BT=torch.linspace(0.5, 2.0, 6)[:, None])
    loss, gradient = accumulated(algorithm, batch, data.new, [[0, 1, 2, 3, 4, 5]])
    assert gradient.abs().max() > 1e-3
    assert (gradient[~data.mask] == 0).all()
    for splits in WHOLE_GROUPS if "whole_groups" in algorithm.needs else SPLITS:
        other_loss, other = accumulated(algorithm, batch, data.new, splits)
        assert other_loss == pytest.approx(loss, abs=1e-6)
        torch.testing.assert_close(other, gradient, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("name", OF_DRAWN_TOKENS)
def test_what_stands_at_masked_tokens_is_never_read(batch_of, data, name):
    algorithm = at(PRESETS[name].algorithm, 0, {})
    clean = policy_objective(algorithm, data.new, batch=batch_of(algorithm, data), denominator=7)
    for values in (data.new, data.old, data.rollout, data.reference):
        values[~data.mask] = 50.0
    dirty = policy_objective(algorithm, data.new, batch=batch_of(algorithm, data), denominator=7)
    assert torch.equal(clean[0], dirty[0])
    assert all(torch.equal(clean[1][metric], dirty[1][metric]) for metric in clean[1])


@pytest.mark.parametrize("name", OF_DRAWN_TOKENS)
def test_the_order_of_the_rollouts_does_not_matter(batch_of, data, name):
    algorithm = at(PRESETS[name].algorithm, 0, {})
    order = torch.tensor([4, 2, 0, 5, 3, 1])
    moved = SimpleNamespace(**{name: value[order] for name, value in vars(data).items()})
    losses = [
        policy_objective(algorithm, each.new, batch=batch_of(algorithm, each), denominator=7)[0]
        for each in (data, moved)
    ]
    assert losses[0].item() == pytest.approx(losses[1].item(), abs=1e-6)


def test_the_critic_too(data):
    algorithm = PRESETS["ppo"].algorithm
    whole = denominator(algorithm, data.mask)
    gradients = []
    for splits in [[[0, 1, 2, 3, 4, 5]], *SPLITS]:
        leaf = data.new.clone().requires_grad_()
        for rows in splits:
            loss, _ = algorithm.critic.loss(
                leaf[rows],
                returns_BT=data.reference[rows],
                old_values_BT=data.old[rows],
                mask_BT=data.mask[rows],
                aggregation=algorithm.aggregation,
                denominator=whole,
            )
            loss.backward()
        gradients.append(leaf.grad)
    assert gradients[0].abs().max() > 1e-3
    for other in gradients[1:]:
        torch.testing.assert_close(other, gradients[0], atol=1e-9, rtol=1e-9)
