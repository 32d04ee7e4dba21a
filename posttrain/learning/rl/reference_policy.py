"""The policy that a divergence is measured from: it stays, follows slowly, or begins anew."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from posttrain.learning.models.hold import hold_as
from posttrain.learning.models.load import Policy
from posttrain.learning.models.narrow import widen_weights
from posttrain.learning.models.tokenizer import check_same_tokenizer
from posttrain.learning.rl.config import RlConfig
from posttrain.learning.rl.references.base import ReferencePart, ReferenceRule
from posttrain.learning.training.prepare import load_to_train
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from posttrain.stage.part_checks import check_declared
from posttrain.stage.slots import name_of
from posttrain.stage.started import started

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from posttrain.learning.models.adapters import Adapter
    from posttrain.learning.models.distributed.shard import Sharded
    from posttrain.learning.models.optim import Optimizer


class ReferencePolicy:
    """A model of its own, and the rule by which it follows the policy."""

    def __init__(self, model: "PreTrainedModel", config: ReferencePart) -> None:
        self.model = model.eval().requires_grad_(requires_grad=False)
        if config.MOVES:
            # Small steps towards the policy would be lost between two numbers of bfloat16.
            widen_weights(self.model)
        self._take(config)

    def _take(self, config: ReferencePart) -> None:
        self._config = config
        self._rule = started(config, config.start(), ReferenceRule, where="rl")
        self.num_restarts = 0

    def reading(self) -> AbstractContextManager["PreTrainedModel"]:
        """The model as the reference is now, for as long as the context lasts."""
        return nullcontext(self.model)

    def tensors(self) -> dict[str, torch.Tensor]:
        """The weights of its own, by name."""
        return dict(self.model.state_dict())

    def of_shards(
        self,
        split: Callable[["PreTrainedModel"], "Sharded"],
        policy: "PreTrainedModel",  # noqa: ARG002 - for those that are the policy itself
    ) -> tuple["ReferencePolicy", "Sharded | None"]:
        """Share the weights out over processes.

        Args:
            split: Gives the twin of a model in shards.
            policy: The policy's model in shards.

        Returns:
            The reference that is asked from now on, and its weights in shards where it has some of
            its own.

        """
        sharded = split(self.model)
        self.model = sharded.model
        return self, sharded

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
                now = new.detach().to(own.dtype)
                own.lerp_(now, weight) if weight < 1.0 else own.copy_(now)

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

    def tensors(self) -> dict[str, torch.Tensor]:
        """None are its own; see `ReferencePolicy.tensors`."""
        return {}

    def of_shards(
        self, split: Callable[["PreTrainedModel"], "Sharded"], policy: "PreTrainedModel"
    ) -> tuple["ReferencePolicy", "Sharded | None"]:
        """Be the policy in shards, which learns in its place; see `ReferencePolicy.of_shards`.

        Args:
            split: Not asked, as there are no weights of its own.
            policy: The policy's model in shards.

        Returns:
            The reference, and None.

        """
        del split
        return PolicyWithoutAdapters(replace(self._adapter, model=policy), self._config), None


def own_reference(
    policy: Policy, config: RlConfig, context: StageContext, path: Path | None
) -> ReferencePolicy | None:
    """Copy or load the reference, where it has weights of its own.

    Args:
        policy: As RL begins with it, before adapters are attached.
        config: Of the run.
        context: With the device.
        path: Of the policy that is connected; None where none is.

    Returns:
        The reference; None where the algorithm asks for none, and where the policy without its
        adapters is the one.

    Raises:
        UserError: The connected policy does not fit.

    """
    if not config.algorithm.uses_reference:
        return None
    if path is None and config.learner.lora is not None and not config.reference.MOVES:
        return None
    if path is None:
        return ReferencePolicy(policy.copied(), config.reference)
    loaded = load_to_train(path, config.learner, device=context.device, processes=context.processes)
    check_same_tokenizer(policy.tokenizer, loaded.tokenizer, where="rl.inputs.reference")
    if config.reference.MOVES and _shapes(loaded.model) != _shapes(policy.model):
        raise UserError(
            f"rl.reference.kind {config.reference.kind}: the connected reference is a model of"
            " another shape, so it cannot follow the policy; set kind to frozen"
        )
    if config.learner.lora is not None:
        # Held as the policy's own base is, so that equal weights have no divergence.
        hold_as(loaded.model, config.learner.weights)
    return ReferencePolicy(loaded.model, config.reference)


def _shapes(model: torch.nn.Module) -> list[tuple[int, ...]]:
    return [tuple(parameter.shape) for parameter in model.parameters()]
