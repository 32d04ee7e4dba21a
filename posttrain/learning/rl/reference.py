"""The policy that a divergence is measured from: it stays, follows slowly, or is refreshed."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from posttrain.learning.rl.model_config import ReferenceConfig

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class ReferencePolicy:
    """A model of its own, and the rule by which it follows the policy."""

    def __init__(self, model: "PreTrainedModel", config: ReferenceConfig) -> None:
        self.model = model.eval().requires_grad_(requires_grad=False)
        self._config = config

    def follow(self, policy: "PreTrainedModel", *, num_updates: int) -> None:
        """Take note of the policy's updates, and move towards it where one is due.

        Args:
            policy: The policy's model, which is only read.
            num_updates: Updates that it has had in all.

        """
        weight = self._config.step_toward_policy(num_updates)
        if not weight:
            return
        pairs = zip(self.model.parameters(), policy.parameters(), strict=True)
        with torch.no_grad():
            for own, new in pairs:
                own.lerp_(new.detach(), weight) if weight < 1.0 else own.copy_(new.detach())

    def state_dict(self) -> dict[str, Any]:
        """The weights; nothing where they stay those of the input."""
        return dict(self.model.state_dict()) if self._config.moves else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        if state:
            self.model.load_state_dict(state)
