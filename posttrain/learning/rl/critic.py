"""A value model: what reward the critic expects before each token."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from posttrain.learning.maths.reduce import widened
from posttrain.learning.models.held_weights import plain_copy
from posttrain.learning.models.logprobs import hidden_states
from posttrain.learning.models.narrow import widen_weights
from posttrain.learning.models.optim import Optimizer
from posttrain.learning.rl.batch import TrainBatch
from posttrain.learning.rl.model_config import ValueModelConfig

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Critic:
    """A scalar head on its own copy of the starting policy, or on the policy that learns.

    Both are float32 at least, whatever the policy is held in.
    The head starts at 0, so the first values are 0 whatever the trunk. On a shared trunk the value
    loss reaches the policy's own weights, and is stepped by the policy's optimizer.
    """

    def __init__(self, policy: "PreTrainedModel", config: ValueModelConfig) -> None:
        self.owns_trunk = config.trunk == "own"
        self.trunk = plain_copy(policy) if self.owns_trunk else policy
        if self.owns_trunk:
            widen_weights(self.trunk)
        self.trunk.eval()
        weight = policy.get_input_embeddings().weight
        wide = widened(weight[:0]).dtype
        device = "cpu" if weight.is_meta else weight.device
        self.head = nn.Linear(weight.shape[1], 1, bias=False).to(device, wide)
        nn.init.zeros_(self.head.weight)
        self.optimizer = critic_optimizer(self.head, self.trunk if self.owns_trunk else None)

    def values(self, batch: TrainBatch) -> Tensor:
        """Expected reward before each drawn token, 0 at the others. ``[B, T]``."""
        return values_on_trunk(self.trunk, self.head, batch)

    def state_dict(self) -> dict[str, Any]:
        """Head, own trunk and optimizer."""
        trunk = self.trunk.base_model.state_dict() if self.owns_trunk else {}
        return {
            "head": self.head.state_dict(),
            "trunk": dict(trunk),
            "optimizer": self.optimizer.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        self.head.load_state_dict(state["head"])
        if self.owns_trunk:
            self.trunk.base_model.load_state_dict(state["trunk"])
        self.optimizer.load_state_dict(state["optimizer"])


def values_on_trunk(trunk: "PreTrainedModel", head: nn.Linear, batch: TrainBatch) -> Tensor:
    """Compute the values of a head on a trunk.

    Args:
        trunk: A causal language model, whose own head is not asked.
        head: From a hidden state to a number.
        batch: The tokens.

    Returns:
        Expected reward before each drawn token, 0 at the others. ``[B, T]``.

    """
    hidden_BTD = hidden_states(trunk, batch.input_ids_BT)
    before_BT = head(hidden_BTD[:, :-1].to(head.weight.dtype))[..., 0].float()
    values_BT = torch.cat([torch.zeros_like(before_BT[:, :1]), before_BT], dim=1)
    return torch.where(batch.mask_BT, values_BT, 0.0)


def critic_optimizer(head: nn.Module, trunk: "PreTrainedModel | None") -> Optimizer:
    """Build AdamW for a value model.

    Args:
        head: Its head.
        trunk: Its own trunk, without that model's head; None where the trunk is the policy.

    Returns:
        One object that steps and clips.

    """
    parameters = [*head.parameters()]
    if trunk is not None:
        parameters += [p for p in trunk.base_model.parameters() if p.requires_grad]
    adamw = torch.optim.AdamW(parameters, lr=0.0, betas=(0.9, 0.95), weight_decay=0.0)
    return Optimizer(parameters, {"critic": adamw})
