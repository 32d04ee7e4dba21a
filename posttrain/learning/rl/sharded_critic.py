"""The value model of several processes: head and trunk in shards."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from posttrain.learning.models.distributed.checkpoint import InShards
from posttrain.learning.models.distributed.group import ProcessGroup
from posttrain.learning.models.distributed.optim import ShardedOptimizer
from posttrain.learning.models.distributed.shard import shard
from posttrain.learning.rl.batch import TrainBatch
from posttrain.learning.rl.critic import Critic, critic_optimizer, values_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel


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
            return values_of(self.trunk, self.head, batch)

        return self._sharded(compute, batch)  # type: ignore[no-any-return]

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Read this process's rows of what `state_dict` gave."""
        InShards(self.head, self._group).load_state_dict(state["head"])
        if self.owns_trunk:
            InShards(self.trunk.base_model, self._group).load_state_dict(state["trunk"])
        self.optimizer.load_state_dict(state["optimizer"])
