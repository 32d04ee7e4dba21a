"""How far the processes of a training run have come together: one checkpoint of their shards."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Self

from torch import Tensor

from posttrain.learning.models.checkpoint import Checkpointer, read_checkpoint
from posttrain.learning.models.distributed.checkpoint import (
    InShards,
    LikeTensors,
    ShareOfGroup,
)
from posttrain.learning.models.distributed.group import ProcessGroup
from posttrain.learning.training.generators import restore_generators
from posttrain.learning.training.progress import GENERATORS, Progress, Stateful


@dataclass(frozen=True)
class SharedProgress(Progress):
    """A checkpoint to which every process adds its shards; all else is the main process's."""

    group: ProcessGroup
    in_shards: frozenset[str]
    """Names of the parts that every process writes and reads; of the others each takes up what the
    main process wrote."""

    @classmethod
    def of(
        cls,
        parts: Mapping[str, Stateful],
        checkpointer: Checkpointer,
        group: ProcessGroup,
        *,
        trained: Mapping[str, Stateful],
        copies: Mapping[str, Mapping[str, Tensor]],
        own: Collection[str],
    ) -> Self:
        """Say of each part who writes what of it.

        Args:
            parts: All that change, by name.
            checkpointer: Writes and finds the files.
            group: The processes.
            trained: Parts of the trained model, whose tensors are shards.
            copies: Tensors whose shards those of other parts are like, by the name of the part.
            own: Names of parts that know themselves what of them is in shards.

        Returns:
            What saves and restores them together.

        """
        adapted: dict[str, Stateful] = {n: InShards(part, group) for n, part in trained.items()}
        for name in copies.keys() & parts.keys():
            if copies[name]:
                adapted[name] = LikeTensors(parts[name], copies[name], group)
        in_shards = frozenset({*adapted, *(parts.keys() & set(own))})
        return cls({**parts, **adapted}, checkpointer, group, in_shards)

    def __post_init__(self) -> None:
        """Let the checkpointer write this process's share."""
        self.checkpointer.share = ShareOfGroup(self.group)

    def states(self) -> dict[str, Any]:
        """All states in the main process, elsewhere those in shards."""
        if self.group.is_main:
            return super().states()
        return {name: self.parts[name].state_dict() for name in sorted(self.in_shards)}

    def restore(self, device: str) -> int:  # noqa: ARG002 - every part knows where its tensors lie
        """Take up the newest checkpoint that the main process finds."""
        found = self.checkpointer.newest() if self.group.is_main else None
        path = self.group.from_main(found)
        if path is None:
            return 0
        snapshot = self.of_these_parts(read_checkpoint(path, in_pieces=self.in_shards))
        for name, part in self.parts.items():
            part.load_state_dict(snapshot.states[name])
        restore_generators(snapshot.states[GENERATORS])
        return snapshot.step
