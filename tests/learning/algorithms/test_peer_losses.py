"""Presets against the numbers that verl's and open-instruct's own functions gave, gradient and all.

Those functions were run, at the commits that the presets name, on the batch below: from its
rewards on, with ratios beyond every bound, so that no switch is idle. The second number of each
pair is the sum of the gradient times `WEIGHTS`.
"""

from types import SimpleNamespace

import pytest
import torch

from posttrain.learning.algorithms.objective import denominator, policy_objective

INDEX = torch.arange(20).view(4, 5)
WEIGHTS = (INDEX * 3 % 5 - 2).float()
# verl divides by the deviation plus 1e-6 whatever the loss.
VERL = {"advantage": {"epsilon": 1e-6}}

PEERS = {
    "verl, vanilla with low_var_kl": ("grpo_verl", {}, (0.295592, -0.522766)),
    "verl, gspo": ("gspo_token", VERL, (0.142790, -0.099545)),
    "verl, gspo, all of a rollout alike": ("gspo", VERL, (0.142790, -0.099545)),
    "verl, sapo": ("sapo", VERL, (0.073088, -0.043969)),
    "verl, cispo of its example": ("cispo", VERL | {"overlong": None}, (0.098097, -0.168837)),
    "verl, geo_mean": ("gmpo", VERL, (0.214186, -0.533977)),
    "open-instruct, dapo": ("grpo_open_instruct", {}, (0.150089, -0.341902)),
    "open-instruct, cispo": ("cispo_open_instruct", {}, (0.167290, -0.202752)),
}


@pytest.fixture
def data():
    """Two problems of two rollouts each, of 5, 3, 4 and 2 tokens."""
    old = -0.2 - (INDEX * 7 % 11) / 5
    return SimpleNamespace(
        old=old,
        new=old + (INDEX * 5 % 13 - 6) / 5,
        reference=old + (INDEX * 3 % 7 - 3) * 0.7,
        rollout=old - (INDEX * 11 % 9 - 4) / 5,
        mask=torch.arange(5) < torch.tensor([[5], [3], [4], [2]]),
        rewards=torch.tensor([1.0, 0.5, 0.0, 0.25]),
        group=torch.tensor([0, 0, 1, 1]),
    )


def test_no_switch_is_idle_on_this_batch(data):
    ratio = (data.new - data.old).exp()[data.mask]
    assert ratio.max() > 3
    assert ratio.min() < 0.7
    assert (data.old - data.rollout).exp()[data.mask].max() > 2
    behind = (data.reference - data.new)[data.mask]
    assert (behind.exp() - 1 - behind).max() > 10


@pytest.mark.parametrize(("name", "changes", "expected"), PEERS.values(), ids=PEERS)
def test_loss_and_gradient(choose, data, batch_of, name, changes, expected):
    algorithm = choose(name, **changes)
    if algorithm.old_policy == "engine":
        data.rollout = data.old
    leaf = data.new.clone().requires_grad_()
    whole = denominator(algorithm, data.mask)
    batch = batch_of(algorithm, data)
    loss, _ = policy_objective(algorithm, leaf, batch=batch, denominator=whole)
    loss.backward()
    found = (loss.item(), (leaf.grad * WEIGHTS).sum().item())
    assert found == pytest.approx(expected, abs=2e-6)
