"""What parts give is refused by slot and kind for a wrong shape, and named where it is NaN."""

from typing import Literal

import pytest
import torch

from posttrain.learning.algorithms.advantages.returns import ReturnAdvantage
from posttrain.learning.algorithms.batches import PolicyBatch, RolloutBatch
from posttrain.learning.algorithms.config import Algorithm
from posttrain.learning.algorithms.credit_assignment import (
    advantages,
    generation_weights,
    informative,
)
from posttrain.learning.algorithms.objective import policy_objective
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


MASK = torch.tensor([[1, 1, 0], [1, 1, 1]]).bool()


def learn(algorithm, outputs=None, logprob=-1.0, **changes):
    leaf = torch.full((2, 3), logprob, requires_grad=True)
    given = {"advantages_BT": torch.ones(2, 1), "sampled_logprobs_BT": torch.full((2, 3), -1.0)}
    batch = PolicyBatch(mask_BT=MASK, **(given | changes))
    return policy_objective(algorithm, leaf, batch=batch, denominator=5, outputs=outputs)[0]


def hidden(value=torch.nan):
    """Of the right shape, and not finite where nothing was drawn."""
    return WIDE.masked_fill(~MASK, value)


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
    with pytest.raises(UserError, match=rf"^{SLOT[method]}\.odd: `{method}` gave .*{said}"):
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


def test_a_loss_is_not_to_blame_on_padding_but_a_gradient_is(monkeypatch):
    outputs = PartOutputs()
    loss = learn(odd(monkeypatch, "token_loss", nothing_clipped(hidden())), outputs)
    assert loss.isfinite()
    assert outputs.culprit() == ""
    assert outputs.culprit(padding=True) == "surrogate.odd: `token_loss`"


def test_no_part_is_to_blame_for_a_policy_that_is_not_finite(monkeypatch):
    outputs = PartOutputs()
    learn(odd(monkeypatch, "token_loss", nothing_clipped(NAN)), outputs, logprob=torch.nan)
    assert outputs.culprit() == outputs.culprit(padding=True) == ""


@pytest.mark.parametrize(
    "name",
    ["reference_logprobs_BT", "old_logprobs_BT", "sampled_logprobs_BT", "advantages_BT"],
)
def test_no_part_is_to_blame_for_what_it_was_given(monkeypatch, name):
    outputs = PartOutputs()
    algorithm = odd(monkeypatch, "loss", (NAN[0, 0], {}))
    learn(algorithm, outputs, **{name: hidden(-torch.inf)})
    assert outputs.culprit() == "regularizer.odd: `loss`"
    given = WIDE.clone()
    given[1, 0] = -torch.inf
    outputs = PartOutputs()
    learn(algorithm, outputs, **{name: given})
    assert outputs.culprit() == f"`{name}` of the batch"


def test_a_token_that_the_reference_says_nothing_of_does_not_accuse_the_divergence():
    algorithm = Algorithm.model_validate({"regularizers": {"kl": {"coefficient": 0.1}}})
    given, outputs = torch.full((2, 3), -1.0), PartOutputs()
    given[0, 1] = -torch.inf
    # Impossible to the reference: the estimate is held at its bound.
    assert learn(algorithm, outputs, reference_logprobs_BT=given).isfinite()
    given[0, 1] = torch.nan
    assert not learn(algorithm, outputs, reference_logprobs_BT=given).isfinite()
    assert outputs.culprit() == "`reference_logprobs_BT` of the batch"


def test_what_stands_at_padding_does_not_count_in_a_generation_either(monkeypatch):
    rollouts = RolloutBatch(torch.ones(2), torch.zeros(2), mask_BT=MASK)
    weights_BT = generation_weights(
        odd(monkeypatch, "of_generation", hidden()), rollouts, torch.ones(2, 1)
    )
    assert weights_BT is not None
    assert weights_BT[MASK].isfinite().all()
    odd(monkeypatch, "of_generation", torch.where(MASK, torch.nan, 0.0))
    with pytest.raises(UserError, match=r"`of_generation` gave NaN or infinity; let it give"):
        generation_weights(odd(monkeypatch, "of_update", None), rollouts, torch.ones(2, 1))


def test_a_group_teaches_nothing_by_what_stands_at_padding():
    class Padded(ReturnAdvantage):
        @property
        def compares_rewards(self):
            return True

        def estimate(self, rollouts, **_):
            return hidden(), None

    rollouts = RolloutBatch(torch.ones(2), torch.zeros(2), mask_BT=MASK)
    assert not informative(Padded(), rollouts).any()


@pytest.mark.parametrize("value", [FLAT, NAN])
def test_weights_and_costs_of_a_generation_are_refused_by_slot_and_kind(monkeypatch, value):
    rollouts = RolloutBatch(torch.ones(2), torch.zeros(2), mask_BT=torch.ones(2, 3))
    algorithm = odd(monkeypatch, "of_generation", value)
    with pytest.raises(UserError, match=r"token_weight\.odd: `of_generation` gave .*; let it give"):
        generation_weights(algorithm, rollouts, torch.ones(2, 1))
    algorithm = odd(monkeypatch, "token_cost", value)
    with pytest.raises(UserError, match=r"regularizer\.odd: `token_cost` gave .*; let it give"):
        advantages(algorithm, rollouts)
