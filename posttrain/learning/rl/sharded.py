"""The learner of several processes: each its share of every update, the policy in shards."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from posttrain.learning.models.checkpoint import Checkpointer
from posttrain.learning.models.distributed.checkpoint import InShards
from posttrain.learning.models.distributed.gather import GatheredTensors, MainsOwn
from posttrain.learning.models.distributed.group import (
    Dismissed,
    ProcessGroup,
    current_process_group,
)
from posttrain.learning.models.distributed.optim import ShardedMuon, ShardedOptimizer
from posttrain.learning.models.distributed.shard import Sharded, lend_whole, restore, shard
from posttrain.learning.models.load import bit_sums
from posttrain.learning.models.optim import build_optimizer
from posttrain.learning.rl.batch import TrainBatch, TrainSample, lengths_and_groups
from posttrain.learning.rl.failures import refuse_infinite
from posttrain.learning.rl.learner import (
    MAXIMA,
    PolicyLearner,
    whole_denominator,
)
from posttrain.learning.rl.passes import ModelPasses, Pass
from posttrain.learning.training.prepare import Trainable
from posttrain.learning.training.progress import Progress, Stateful
from posttrain.learning.training.sharded import SharedProgress, shares, twin
from posttrain.stage.errors import UserError


@dataclass
class ShardedPasses(ModelPasses):
    """One of several processes, which all ask for the same rows and all get them."""

    group: ProcessGroup
    sharded: Sharded

    def present_logprobs(self, batch: TrainBatch) -> Tensor:
        """Of the policy as it is now. ``[B, T]``."""
        with torch.no_grad():
            logprobs_BT: Tensor = self.sharded(
                self.policy, batch.input_ids_BT, batch.mask_BT
            ).logprobs_BT
        return logprobs_BT

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
            found = self._rows_of(bucket, samples, compute)
            rows |= found if counts else {}
        everyone: dict[int, tuple[float, ...]] = {}
        for found in self.group.from_all(rows):
            everyone |= found
        return everyone


_STORE = "rollouts"


@dataclass
class ShardedPolicyLearner(PolicyLearner):
    """One of several processes, which all draw on the same rollouts.

    The policy is there twice: in shards, which learn, and whole, as the engine reads it. Losses
    are given the denominator of the whole update, so gradients add up over the processes.
    """

    group: ProcessGroup
    sharded: Sharded
    whole: Trainable

    def fingerprint(self) -> object:
        """Of all shards, in every process."""
        own = (p for p in self.sharded.model.parameters() if p.requires_grad)
        return self.group.from_all(bit_sums(p.to_local() for p in own))

    def lend(self) -> None:
        """Give the whole policy, which is drawn from, the weights as they are now."""
        lend_whole(self.whole.model, self.sharded)

    def weights(self) -> Any:
        """The whole weights; every process must ask for them."""
        return GatheredTensors(self.sharded.model, self.group)

    def progress(self, parts: Mapping[str, Stateful], checkpointer: Checkpointer) -> Progress:
        """Save the shards of all processes; see `PolicyLearner.progress`."""
        tensors = self.trainable.parts()

        def shared(name: str, part: Stateful) -> Stateful:
            if name in tensors:
                return InShards(part, self.group)
            return MainsOwn(part, self.group) if name == _STORE else part

        in_shards = {*tensors, *(n for n, part in parts.items() if part is self.optimizer)}
        return SharedProgress(
            {name: shared(name, part) for name, part in parts.items()},
            checkpointer,
            self.group,
            frozenset(in_shards),
        )

    def finish(self) -> None:
        """Give the whole policy its weights in the main process; the others are done."""
        super().finish()
        restore(self.whole.model, self.sharded, self.group)
        if not self.group.is_main:
            raise Dismissed
        self.whole.model.eval()

    def accumulate(
        self, parts: Sequence[TrainBatch], *, where: str, first: bool = True
    ) -> dict[str, float]:
        """Add up this process's share of an update's gradient; see `PolicyLearner.accumulate`."""
        whole = whole_denominator(parts, self.passes.config)
        num_tokens = sum(part.num_tokens for part in parts)
        sums: dict[str, float] = {}
        maxima: dict[str, float] = {}
        for part, counts in shares(parts, self.group):
            loss, metrics = self.sharded(self._loss_there, part, whole, first)
            (loss if counts else 0.0 * loss).backward()
            share = part.num_tokens / num_tokens if counts else 0.0
            sums["loss"] = sums.get("loss", 0.0) + (float(loss.detach()) if counts else 0.0)
            for name, value in metrics.items():
                if name in MAXIMA:
                    maxima[name] = max(maxima.get(name, 0.0), float(value))
                else:
                    sums[name] = sums.get(name, 0.0) + float(value) * share
        totals = self.group.totals(sums) | self.group.maxima(maxima)
        refuse_infinite(totals["loss"], self.outputs, where=where)
        return totals

    def _loss_there(
        self, _: Any, part: TrainBatch, whole: int, first: bool
    ) -> tuple[Tensor, dict[str, Tensor]]:
        return self.loss(part, denominator=whole, first=first)


def in_shards(learner: PolicyLearner) -> ShardedPolicyLearner:
    """The same learner as one of several processes; its model lends its weights and is whole."""
    _refuse_whole_weights(learner)
    passes = learner.passes
    group = current_process_group(passes.device)
    sharded = shard(learner.model, group)
    optimizer = build_optimizer(
        sharded.model,
        kind=passes.config.optimization.optimizer,
        weight_decay=passes.config.optimization.weight_decay,
        muon=ShardedMuon,
    )
    given = {each.name: getattr(passes, each.name) for each in fields(passes)}
    given["trainable"] = twin(learner.trainable, sharded.model)
    made = ShardedPolicyLearner(
        passes=ShardedPasses(**given, group=group, sharded=sharded),
        optimizer=ShardedOptimizer(optimizer, group),
        scratch=learner.scratch,
        beside=learner.beside,
        group=group,
        sharded=sharded,
        whole=learner.trainable,
    )
    made.lend()
    return made


def _refuse_whole_weights(learner: PolicyLearner) -> None:
    """Refuse what works on whole weights."""
    config = learner.passes.config
    asked = {
        "a value model": config.algorithm.critic is not None,
        "the mean over the vocabulary": "vocabulary_ratio" in config.algorithm.needs,
        "advantage learned": "turn_values" in config.algorithm.needs,
        f"reference.kind {config.reference.kind}": config.reference.MOVES,
        "updates.rehearsals": bool(config.updates.rehearsals),
        "stop.keep best": config.stop is not None and config.stop.keep == "best",
    }
    for name, is_set in asked.items():
        if is_set:
            raise UserError(
                f"rl: {name} works on whole weights, but several processes have a part each; do"
                " without it, or leave resources.processes out"
            )
