"""The learner of several processes: each its share of every update, the policy in shards."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from posttrain.learning.models.checkpoint import Checkpointer
from posttrain.learning.models.distributed.checkpoint import InShards, LikeTensors
from posttrain.learning.models.distributed.gather import GatheredTensors, MainsOwn
from posttrain.learning.models.distributed.group import (
    Dismissed,
    ProcessGroup,
    current_process_group,
)
from posttrain.learning.models.distributed.optim import ShardedMuon, ShardedOptimizer
from posttrain.learning.models.distributed.shard import (
    Sharded,
    lend_whole,
    restore,
    shard,
    take_back,
)
from posttrain.learning.models.load import bit_sums
from posttrain.learning.models.optim import build_optimizer
from posttrain.learning.rl.batch import TrainBatch, TrainSample, lengths_and_groups
from posttrain.learning.rl.failures import refuse_infinite
from posttrain.learning.rl.learner import (
    MAXIMA,
    SUMS,
    PolicyLearner,
    whole_denominator,
)
from posttrain.learning.rl.passes import ModelPasses, Pass
from posttrain.learning.rl.rollout import Group
from posttrain.learning.rl.sharded_critic import ShardedCritic
from posttrain.learning.training.best_weights import BestWeights
from posttrain.learning.training.prepare import Trainable
from posttrain.learning.training.progress import Progress, Stateful
from posttrain.learning.training.sharded import SharedProgress, shares, twin
from posttrain.stage.errors import UserError


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
        assert self.sharded_reference is not None
        with torch.no_grad():
            logprobs_BT: Tensor = self.sharded_reference(
                self.policy, batch.input_ids_BT, batch.mask_BT
            ).logprobs_BT
        return logprobs_BT

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

    The policy is there twice while it is drawn from: in shards, which learn, and whole, as the
    engine reads it. Losses are given the denominator of the whole update, so gradients add up over
    the processes.
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

    def lend_to_main(self) -> None:
        """Give the whole policy of the main process alone the weights as they are now."""
        restore(self.whole.model, self.sharded, self.group)

    def training_samples(
        self, groups: Sequence[Group], *, step: int
    ) -> list[list[TrainSample | None]]:
        """Free the whole policy, as all is drawn; see `PolicyLearner.training_samples`."""
        take_back(self.whole.model)
        return super().training_samples(groups, step=step)

    def weights(self) -> Any:
        """The whole weights; every process must ask for them."""
        return GatheredTensors(self.sharded.model, self.group)

    def progress(self, parts: Mapping[str, Stateful], checkpointer: Checkpointer) -> Progress:
        """Save the shards of all processes; see `PolicyLearner.progress`."""
        own = dict(self.model.named_parameters())
        reference = self.passes.reference
        copies = {"best": own, "reference": reference and reference.model.state_dict()}
        adapted: dict[str, Stateful] = {
            **{name: InShards(part, self.group) for name, part in self.trainable.parts().items()},
            **{
                name: LikeTensors(parts[name], tensors, self.group)
                for name, tensors in copies.items()
                if name in parts and tensors
            },
        }
        in_shards = frozenset({*adapted, "optimizer", "critic"} & parts.keys())
        if _STORE in parts:
            adapted[_STORE] = MainsOwn(parts[_STORE], self.group)
        return SharedProgress({**parts, **adapted}, checkpointer, self.group, in_shards)

    def finish(self, best: BestWeights | None = None) -> None:
        """Give the whole policy its weights in the main process; the others are done."""
        super().finish(best)
        restore(self.whole.model, self.sharded, self.group)
        if not self.group.is_main:
            raise Dismissed
        self.whole.model.eval()

    def accumulate(
        self, parts: Sequence[TrainBatch], *, where: str, first: bool = True
    ) -> dict[str, float]:
        """Add up this process's share of an update's gradient; see `PolicyLearner.accumulate`."""
        whole = whole_denominator(parts, self.passes.config)
        of_critic = whole_denominator([p.for_critic() for p in parts], self.passes.config)
        denominators = whole, max(1, of_critic)
        num_tokens = sum(part.num_tokens for part in parts)
        sums: dict[str, float] = {}
        maxima: dict[str, float] = {}
        for part, counts in shares(parts, self.group):
            loss, metrics = self.sharded(self._loss_there, part, denominators, first)
            (loss if counts else 0.0 * loss).backward()
            share = part.num_tokens / num_tokens if counts else 0.0
            sums["loss"] = sums.get("loss", 0.0) + (float(loss.detach()) if counts else 0.0)
            for name, value in metrics.items():
                if name in MAXIMA:
                    maxima[name] = max(maxima.get(name, 0.0), float(value))
                else:
                    weight = float(counts) if name in SUMS else share
                    sums[name] = sums.get(name, 0.0) + float(value) * weight
        totals = self.group.totals(sums) | self.group.maxima(maxima)
        refuse_infinite(totals["loss"], self.outputs, where=where)
        return totals

    def _loss_there(
        self, _: Any, part: TrainBatch, denominators: tuple[int, int], first: bool
    ) -> tuple[Tensor, dict[str, Tensor]]:
        whole, of_critic = denominators
        return self.loss(part, denominator=whole, of_critic=of_critic, first=first)


def in_shards(learner: PolicyLearner) -> ShardedPolicyLearner:
    """The same learner as one of several processes; its model lends its weights and is whole."""
    _refuse_whole_weights(learner)
    passes = learner.passes
    group = current_process_group(passes.device)
    offload = passes.config.learner.offload
    sharded = shard(learner.model, group, offload=offload)
    optimizer = build_optimizer(
        sharded.model,
        kind=passes.config.optimization.optimizer,
        weight_decay=passes.config.optimization.weight_decay,
        muon=ShardedMuon,
    )
    given = {each.name: getattr(passes, each.name) for each in fields(passes)}
    given["trainable"] = twin(learner.trainable, sharded.model)
    if passes.critic is not None:
        given["critic"] = ShardedCritic(passes.critic, sharded.model, group, offload=offload)
    reference = None
    if passes.reference is not None:
        reference = shard(passes.reference.model, group, offload=offload)
        passes.reference.model = reference.model
    made = ShardedPolicyLearner(
        passes=ShardedPasses(**given, group=group, sharded=sharded, sharded_reference=reference),
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
        "the mean over the vocabulary": "vocabulary_ratio" in config.algorithm.needs,
        "advantage learned": "turn_values" in config.algorithm.needs,
        "updates.rehearsals": bool(config.updates.rehearsals),
    }
    for name, is_set in asked.items():
        if is_set:
            raise UserError(
                f"rl: {name} works on whole weights, but several processes have a part each; do"
                " without it, or leave resources.processes out"
            )
