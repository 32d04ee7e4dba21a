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
        """Take note that the policy has now had `num_updates` updates in all."""
        decay = self._config.decay
        if self._config.kind == "ema" and decay is not None:
            self._move(policy, 1.0 - decay)
        every = self._config.every
        if self._config.kind == "periodic" and every is not None and num_updates % every == 0:
            self._move(policy, 1.0)

    def _move(self, policy: "PreTrainedModel", weight: float) -> None:
        """Towards the policy, by `weight` of the way."""
        pairs = zip(self.model.parameters(), policy.parameters(), strict=True)
        with torch.no_grad():
            for own, new in pairs:
                own.lerp_(new.detach(), weight) if weight < 1.0 else own.copy_(new.detach())

    def state_dict(self) -> dict[str, Any]:
        """The weights; nothing where they stay those of the input."""
        return {} if self._config.kind == "frozen" else dict(self.model.state_dict())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        if state:
            self.model.load_state_dict(state)
