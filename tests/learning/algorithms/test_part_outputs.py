"""What parts give is refused by slot and kind for a wrong shape, and named where it is NaN."""

from typing import Literal

import pytest
import torch

from posttrain.learning.algorithms.batches import PolicyBatch, RolloutBatch
from posttrain.learning.algorithms.config import Algorithm
from posttrain.learning.algorithms.objective import (
    advantages,
    generation_weights,
    policy_objective,
)
from posttrain.learning.algorithms.part_outputs import PartOutputs
from posttrain.learning.algorithms.regularizers.base import Regularizer
from posttrain.learning.algorithms.surrogates.base import Surrogate, nothing_clipped
from posttrain.learning.algorithms.token_weights.base import TokenWeight
from posttrain.stage.errors import UserError

GIVEN = {}
"""What the odd parts give, by method."""
FLAT, WIDE, NAN = torch.zeros(2), torch.zeros(2, 3), torch.full((2, 3), torch.nan)
"""Of two rollouts with three tokens: of the wrong shape, the right one, and not finite."""
SLOT = {
    "token_loss": "surrogate",
    "of_generation": "token_weight",
    "of_update": "token_weight",
    "token_cost": "regularizer",
    "advantage_bonus": "regularizer",
    "loss": "regularizer",
}


class OddSurrogate(Surrogate):
    kind: Literal["odd"] = "odd"

    def token_loss(self, logprobs_BT, log_ratio_BT, batch):
        plain = nothing_clipped(-batch.advantages_BT * logprobs_BT)
        return GIVEN.get("token_loss", plain)


class OddWeight(TokenWeight):
    kind: Literal["odd"] = "odd"

    def of_generation(self, rollouts, advantages_BT):
        return GIVEN.get("of_generation")

    def of_update(self, logprobs_BT, *, old_logprobs_BT, batch):
        return GIVEN.get("of_update")


class OddRegularizer(Regularizer):
    kind: Literal["odd"] = "odd"
    coefficient: float = 1.0

    def token_cost(self, rollouts):
        return GIVEN.get("token_cost")

    def advantage_bonus(self, old_logprobs_BT):
        return GIVEN.get("advantage_bonus")

    def loss(self, logprobs_BT, **_):
        return GIVEN.get("loss")


def odd(monkeypatch, method, value):
    """An algorithm whose three parts are odd ones, of which one method gives something."""
    monkeypatch.setitem(GIVEN, method, value)
    changes = {
        "surrogate": OddSurrogate(),
        "token_weights": {"odd": OddWeight()},
        "regularizers": {"odd": OddRegularizer()},
    }
    return Algorithm().model_copy(update=changes)


def learn(algorithm, outputs=None):
    leaf = torch.full((2, 3), -1.0, requires_grad=True)
    batch = PolicyBatch(
        mask_BT=torch.tensor([[1, 1, 0], [1, 1, 1]]).bool(),
        advantages_BT=torch.ones(2, 1),
        sampled_logprobs_BT=leaf.detach(),
    )
    return policy_objective(algorithm, leaf, batch=batch, denominator=5, outputs=outputs)[0]


@pytest.mark.parametrize(
    ("method", "value", "said"),
    [
        ("token_loss", WIDE, "a Tensor; let it give two things: the loss of each token, and"),
        ("token_loss", (FLAT, WIDE), r"of shape \[2\]; let it give .* \[B, T\] = \[2, 3\]$"),
        ("token_loss", (WIDE, WIDE[:1]), r"of shape \[1, 3\]; let it give .* \[B, T\] = \[2, 3\]$"),
        ("of_update", FLAT, r"\[2\]; .* \[B, T\] = \[2, 3\] or \[B, 1\] = \[2, 1\]$"),
        ("of_update", 2.0, r"2\.0; let it give a tensor of shape \[B, T\] = \[2, 3\]"),
        ("advantage_bonus", WIDE[:, :2], r"\[2, 2\]; .* \[B, T\] = \[2, 3\] or \[B, 1\]"),
        ("loss", WIDE, "a Tensor; let it give two things: the loss, and metrics by name"),
        ("loss", (WIDE, {}), r"of shape \[2, 3\]; let it give a tensor of shape \[\], a scalar"),
    ],
)
def test_what_has_another_shape_is_refused_by_slot_and_kind(monkeypatch, method, value, said):
    with pytest.raises(UserError, match=rf"^rl: {SLOT[method]}\.odd: `{method}` gave .*{said}"):
        learn(odd(monkeypatch, method, value))


@pytest.mark.parametrize(
    ("method", "value"),
    [
        ("token_loss", nothing_clipped(NAN)),
        ("of_update", NAN),
        ("advantage_bonus", NAN),
        ("loss", (NAN[0, 0], {})),
    ],
)
def test_the_part_that_began_a_loss_that_is_not_finite_is_known(monkeypatch, method, value):
    outputs = PartOutputs()
    learn(odd(monkeypatch, "token_loss", nothing_clipped(WIDE)), outputs)
    assert outputs.culprit() == ""
    monkeypatch.delitem(GIVEN, "token_loss")
    loss = learn(odd(monkeypatch, method, value), outputs)
    assert not loss.isfinite()
    assert outputs.culprit() == f"{SLOT[method]}.odd: `{method}`"


def test_a_part_is_not_to_blame_for_what_it_was_given_or_where_nothing_was_drawn(monkeypatch):
    outputs = PartOutputs()
    hidden = WIDE.clone()
    hidden[0, 2] = torch.nan
    learn(odd(monkeypatch, "token_loss", nothing_clipped(hidden)), outputs)
    assert outputs.culprit() == ""
    outputs.given(NAN, torch.ones(2, 3))
    learn(odd(monkeypatch, "token_loss", nothing_clipped(NAN)), outputs)
    assert outputs.culprit() == ""


@pytest.mark.parametrize("value", [FLAT, NAN])
def test_weights_and_costs_of_a_generation_are_refused_by_slot_and_kind(monkeypatch, value):
    rollouts = RolloutBatch(torch.ones(2), torch.zeros(2), mask_BT=torch.ones(2, 3))
    algorithm = odd(monkeypatch, "of_generation", value)
    with pytest.raises(UserError, match=r"token_weight\.odd: `of_generation` gave .*; let it give"):
        generation_weights(algorithm, rollouts, torch.ones(2, 1))
    algorithm = odd(monkeypatch, "token_cost", value)
    with pytest.raises(UserError, match=r"regularizer\.odd: `token_cost` gave .*; let it give"):
        advantages(algorithm, rollouts)
