"""Policies that the one that learns is compared with, in memory only while they are read."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from posttrain.learning.models.hold import hold_as
from posttrain.learning.models.load import weights_digest
from posttrain.learning.preference.config import PreferenceConfig
from posttrain.learning.training.prepare import Trainable

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from posttrain.learning.models.load import Policy
    from posttrain.learning.rollouts.engines.base import RolloutEngine


@dataclass(frozen=True)
class FrozenPolicy:
    """A policy as it was at some time."""

    reading: Callable[[], AbstractContextManager["PreTrainedModel"]]
    """Gives its model, in evaluation mode, for as long as the context lasts; another policy may
    not be read meanwhile."""
    digest: Callable[[], str]
    """Of its weights."""

    @classmethod
    def of(cls, model: "PreTrainedModel") -> "FrozenPolicy":
        """A model as it is; it is asked before it changes."""
        return cls(lambda: nullcontext(model.eval()), lambda: weights_digest(model))

    @contextmanager
    def mixed_into(
        self, policy: "Policy", *, share: float, batch_size: int
    ) -> Iterator["RolloutEngine"]:
        """Open what samples from a geometric mixture of a policy and this one.

        Args:
            policy: The other one; this one must be a model of its own.
            share: Of this one.
            batch_size: Sequences that are drawn together.

        Yields:
            The engine.

        """
        from posttrain.learning.rollouts.engines.mixture import MixtureRolloutEngine

        with self.reading() as model:
            yield MixtureRolloutEngine(policy, model, share=share, batch_size=batch_size)


def initial_policy(
    trainable: Trainable,
    config: PreferenceConfig,
    load: Callable[[], "PreTrainedModel"],
) -> FrozenPolicy:
    """Say where the policy that training begins with is found, once it has begun.

    Under adapters it is the model without them. A copy is held beside the policy only where both
    are asked at every step or in every round; else the few values that are needed of it are kept,
    and it is read once more from where it was stored.

    Args:
        trainable: The policy before its first step.
        config: Of the stage.
        load: Reads its model from where it was stored.

    Returns:
        The policy before the first step.

    """
    adapter, asks_both = trainable.adapter, config.opponent == "mixture"
    if adapter is not None and not asks_both:
        return FrozenPolicy(adapter.switched_off, lambda: adapter.base_digest)
    if config.rounds or config.algorithm.draws_own:
        copied = load()
        if adapter is not None:
            hold_as(copied, config.learner.weights)
        return FrozenPolicy.of(copied)
    before = weights_digest(trainable.model)

    @contextmanager
    def stored() -> Iterator["PreTrainedModel"]:
        yield load()

    return FrozenPolicy(stored, lambda: before)
