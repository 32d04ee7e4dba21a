"""Forward passes of several processes: each its share of the batches, the policy in shards."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from posttrain.learning.models.distributed.group import Group
from posttrain.learning.models.distributed.shard import Sharded
from posttrain.learning.rl.batch import TrainBatch, TrainSample, lengths_and_groups
from posttrain.learning.rl.passes import ModelPasses, Pass
from posttrain.learning.training.sharded import shares


@dataclass
class ShardedPasses(ModelPasses):
    """One of several processes, which all ask for the same rows and all get them."""

    group: Group
    sharded: Sharded

    def present_logprobs(self, batch: TrainBatch) -> Tensor:
        """Of the policy as it is now. ``[B, T]``."""
        with torch.no_grad():
            logprobs_BT: Tensor = self.sharded(
                self.policy, batch.input_ids_BT, batch.mask_BT
            ).logprobs_BT
        return logprobs_BT

    def buckets(self, lengths: Sequence[int], groups: Sequence[int]) -> list[list[int]]:
        """At least one for each process, where there are rows enough."""
        budget = self.config.updates.micro_batch_tokens
        buckets = self._within(lengths, groups, budget)
        while len(buckets) < min(self.group.size, len(lengths)) and budget > max(lengths):
            budget = max(budget // 2, *lengths)
            buckets = self._within(lengths, groups, budget)
        return buckets

    def _found(self, samples: Sequence[TrainSample], compute: Pass) -> dict[int, tuple[float, ...]]:
        rows: dict[int, tuple[float, ...]] = {}
        for bucket, counts in shares(self.buckets(*lengths_and_groups(samples)), self.group):
            found = self._rows_of(bucket, samples, compute)
            rows |= found if counts else {}
        everyone: dict[int, tuple[float, ...]] = {}
        for found in self.group.from_all(rows):
            everyone |= found
        return everyone
