"""The models of several processes: passes that all of them make, and a value model in shards."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from posttrain.learning.models.distributed.checkpoint import InShards
from posttrain.learning.models.distributed.group import ProcessGroup
from posttrain.learning.models.distributed.optim import ShardedOptimizer
from posttrain.learning.models.distributed.shard import Sharded, shard
from posttrain.learning.rl.batch import TrainBatch, TrainSample, lengths_and_groups
from posttrain.learning.rl.critic import Critic, critic_optimizer, values_on_trunk
from posttrain.learning.rl.passes import ModelPasses, Pass, rows_of
from posttrain.learning.training.sharded import shares

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from posttrain.learning.rl.reference_divergence import ReferenceStates


@dataclass
class ShardedPasses(ModelPasses):
    """One of several processes, which all ask for the same rows and all get them."""

    group: ProcessGroup
    sharded: Sharded
    sharded_reference: Sharded | None = None

    def present_logprobs(self, batch: TrainBatch) -> Tensor:
        """Of the policy as it is now. ``[B, T]``."""
        with torch.no_grad():
            logprobs_BT: Tensor = self.sharded(
                self.policy, batch.input_ids_BT, batch.mask_BT
            ).logprobs_BT
        return logprobs_BT

    def reference_logprobs(self, batch: TrainBatch) -> Tensor:
        """Of the reference policy as it is now. ``[B, T]``."""
        assert self.reference is not None
        # Without a model of its own it is the policy, whose shards may be whole at the moment.
        asked = self.sharded_reference or self.sharded
        with torch.no_grad(), self.reference.reading():
            return asked.ask(self.policy, batch.input_ids_BT, batch.mask_BT).logprobs_BT

    def reference_states(self, batch: TrainBatch) -> "ReferenceStates":
        """Copy the head out of the shards; see `ModelPasses.reference_states`."""
        from posttrain.learning.rl.reference_divergence import reference_states

        assert self.reference is not None
        asked = self.sharded_reference or self.sharded
        with torch.no_grad(), self.trainable.computing(), self.reference.reading():
            return asked.ask(partial(reference_states, copied=True), batch)

    def present_values(self, batch: TrainBatch) -> Tensor:
        """Of the critic as it is now. ``[B, T]``."""
        assert self.critic is not None
        if self.critic.owns_trunk:
            return super().present_values(batch)

        def on_the_policy(_: Any) -> Tensor:
            return self.values(batch)

        with torch.no_grad():
            values_BT: Tensor = self.sharded(on_the_policy)
        return values_BT

    def buckets(self, lengths: Sequence[int], groups: Sequence[int]) -> list[list[int]]:
        """Make one for each process, if rows suffice; see `ModelPasses.buckets`."""
        budget = self.config.updates.micro_batch_tokens
        buckets = self._within(lengths, groups, budget)
        while len(buckets) < min(self.group.size, len(lengths)) and budget > max(lengths):
            budget = max(budget // 2, *lengths)
            buckets = self._within(lengths, groups, budget)
        return buckets

    def _found(self, samples: Sequence[TrainSample], compute: Pass) -> dict[int, tuple[float, ...]]:
        rows: dict[int, tuple[float, ...]] = {}
        for bucket, counts in shares(self.buckets(*lengths_and_groups(samples)), self.group):
            found = rows_of(self, bucket, samples, compute)
            rows |= found if counts else {}
        everyone: dict[int, tuple[float, ...]] = {}
        for found in self.group.from_all(rows):
            everyone |= found
        return everyone


class _Together(nn.Module):
    """Head and own trunk as one module, which is sharded at once."""

    def __init__(self, head: nn.Module, trunk: "PreTrainedModel | None") -> None:
        super().__init__()
        self.head, self.trunk = head, trunk


class ShardedCritic(Critic):
    """As `Critic`; on a shared trunk, values are asked within a call of the policy in shards."""

    def __init__(
        self, whole: Critic, policy: "PreTrainedModel", group: ProcessGroup, *, offload: bool
    ) -> None:
        """Take the weights of a whole one, which is empty afterwards.

        Args:
            whole: As it is before anything was learned.
            policy: The policy in shards.
            group: The processes.
            offload: See `shard`.

        """
        self.owns_trunk = whole.owns_trunk
        own = whole.trunk if whole.owns_trunk else None
        self._sharded = shard(_Together(whole.head, own), group, offload=offload)
        self.head: Any = self._sharded.model.head
        self.trunk: Any = self._sharded.model.trunk if whole.owns_trunk else policy
        built = critic_optimizer(self.head, self.trunk if self.owns_trunk else None)
        self.optimizer = ShardedOptimizer(built, group)
        self._group = group

    def values(self, batch: TrainBatch) -> Tensor:
        """Expected reward before each drawn token, 0 at the others. ``[B, T]``."""

        def compute(_: nn.Module, batch: TrainBatch) -> Tensor:
            return values_on_trunk(self.trunk, self.head, batch)

        return self._sharded(compute, batch)  # type: ignore[no-any-return]

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Read this process's rows of what `state_dict` gave."""
        InShards(self.head, self._group).load_state_dict(state["head"])
        if self.owns_trunk:
            InShards(self.trunk.base_model, self._group).load_state_dict(state["trunk"])
        self.optimizer.load_state_dict(state["optimizer"])
