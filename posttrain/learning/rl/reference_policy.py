"""The policy that a divergence is measured from: it stays, follows slowly, or begins anew."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch

from posttrain.learning.rl.references.base import ReferencePart, ReferenceRule
from posttrain.stage.part_checks import check_declared
from posttrain.stage.slots import name_of
from posttrain.stage.started import started

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from posttrain.learning.models.adapters import Adapter
    from posttrain.learning.models.optim import Optimizer


class ReferencePolicy:
    """A model of its own, and the rule by which it follows the policy."""

    def __init__(self, model: "PreTrainedModel", config: ReferencePart) -> None:
        self.model = model.eval().requires_grad_(requires_grad=False)
        self._take(config)

    def _take(self, config: ReferencePart) -> None:
        self._config = config
        self._rule = started(config, config.start(), ReferenceRule, where="rl")
        self.num_restarts = 0

    def reading(self) -> AbstractContextManager["PreTrainedModel"]:
        """The model as the reference is now, for as long as the context lasts."""
        return nullcontext(self.model)

    @property
    def measured(self) -> dict[str, float]:
        """What is measured of it in every step, by the names of the metrics."""
        found = {"reference_restarts": float(self.num_restarts)}
        measured = {name: value for name, value in found.items() if name in self._config.METRICS}
        check_declared(measured, self._config.METRICS, part=name_of(self._config))
        return measured

    def follow(self, policy: "PreTrainedModel", *, num_updates: int) -> None:
        """Take note of the policy's updates, and move towards it where one is due.

        Args:
            policy: The policy's model, which is only read.
            num_updates: Updates that it has had in all.

        """
        weight = self._config.step_toward_policy(num_updates)
        if weight:
            self._move(policy, weight)

    def observe(
        self,
        metrics: Mapping[str, float],
        *,
        step: int,
        policy: "PreTrainedModel",
        optimizer: "Optimizer",
    ) -> None:
        """Take note of a step, and begin anew where the rule says so.

        Args:
            metrics: Of the step, by full name.
            step: 0-based step that is over.
            policy: The policy's model, which is only read.
            optimizer: Of the policy; it forgets where everything begins anew.

        """
        if not self._rule.observe(metrics, step=step):
            return
        self._move(policy, 1.0)
        optimizer.forget()
        self.num_restarts += 1

    def _move(self, policy: "PreTrainedModel", weight: float) -> None:
        pairs = zip(self.model.parameters(), policy.parameters(), strict=True)
        with torch.no_grad():
            for own, new in pairs:
                own.lerp_(new.detach(), weight) if weight < 1.0 else own.copy_(new.detach())

    def state_dict(self) -> dict[str, Any]:
        """The weights and the rule; nothing where they stay those of the input."""
        if not self._config.MOVES:
            return {}
        return {
            "weights": dict(self.model.state_dict()),
            "rule": self._rule.state_dict(),
            "num_restarts": self.num_restarts,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        if state:
            self.model.load_state_dict(state["weights"])
            self._rule.load_state_dict(state["rule"])
            self.num_restarts = int(state["num_restarts"])


class PolicyWithoutAdapters(ReferencePolicy):
    """The policy that RL began with, as the one that learns is without its adapters: no copy."""

    def __init__(self, adapter: "Adapter", config: ReferencePart) -> None:
        self._adapter = adapter
        self._take(config)

    def reading(self) -> AbstractContextManager["PreTrainedModel"]:
        """The policy's own model with its adapters off; see `ReferencePolicy.reading`."""
        return self._adapter.switched_off()
