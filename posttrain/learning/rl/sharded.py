"""The learner of several processes: each its share of every update, the policy in shards."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

from torch import Tensor

from posttrain.learning.models.build_optim import build_optimizer
from posttrain.learning.models.checkpoint import Checkpointer
from posttrain.learning.models.distributed.gather import GatheredTensors, MainsOwn
from posttrain.learning.models.distributed.group import (
    Dismissed,
    ProcessGroup,
    current_process_group,
)
from posttrain.learning.models.distributed.shard import (
    Sharded,
    lend_whole,
    restore,
    shard,
    take_back,
)
from posttrain.learning.models.load import bit_sums
from posttrain.learning.rl.batch import TrainBatch
from posttrain.learning.rl.failures import refuse_infinite
from posttrain.learning.rl.learner import (
    MAXIMA,
    SUMS,
    PolicyLearner,
    balanced_loss,
    whole_denominator,
)
from posttrain.learning.rl.sharded_models import (
    ShardedCritic,
    ShardedPasses,
)
from posttrain.learning.training.prepare import Trainable
from posttrain.learning.training.progress import Progress, Stateful
from posttrain.learning.training.sharded import shares, twin
from posttrain.learning.training.shared_progress import SharedProgress

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

    def weights(self) -> Any:
        """The whole weights; every process must ask for them."""
        return GatheredTensors(self.sharded.model, self.group)

    def progress(self, parts: Mapping[str, Stateful], checkpointer: Checkpointer) -> Progress:
        """Save the shards of all processes; see `PolicyLearner.progress`."""
        reference = self.passes.reference
        copies = {
            "best": dict(self.model.named_parameters()),
            "reference": reference.tensors() if reference else {},
        }
        if _STORE in parts:
            parts = {**parts, _STORE: MainsOwn(parts[_STORE], self.group)}
        return SharedProgress.of(
            parts,
            checkpointer,
            self.group,
            trained=self.trainable.parts(),
            copies=copies,
            own=("optimizer", "critic"),
        )

    def finish(self, put_best: Callable[[], None] | None = None) -> None:
        """Give the whole policy its weights in the main process; the others are done."""
        super().finish(put_best)
        restore(self.whole.model, self.sharded, self.group)
        if not self.group.is_main:
            raise Dismissed
        self.whole.model.eval()

    def accumulate(
        self, parts: Sequence[TrainBatch], *, where: str, first: bool = True
    ) -> dict[str, float]:
        """Add up this process's share of an update's gradient; see `PolicyLearner.accumulate`."""
        # All of the step is drawn, and what the backward pass keeps wants room.
        take_back(self.whole.model)
        whole = whole_denominator(parts, self.passes.config)
        of_critic = whole_denominator([p.for_critic() for p in parts], self.passes.config)
        denominators = whole, max(1, of_critic)
        num_tokens = sum(part.num_tokens for part in parts)
        sums: dict[str, float] = {}
        maxima: dict[str, float] = {}
        router = self.passes.router
        if router is not None:
            with self.trainable.computing():
                # Each counts the experts of all tokens: a share of the loss needs those of others.
                self.sharded(router.begin, [part.routed() for part in parts])
        mine = shares(parts, self.group)
        for number, (part, counts) in enumerate(mine, start=1):
            loss, metrics = self.sharded(self._loss_there, part, denominators, first, num_tokens)
            self.optimizer.backward(loss if counts else 0.0 * loss, last=number == len(mine))
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
        self,
        _: Any,
        part: TrainBatch,
        denominators: tuple[int, int],
        first: bool,
        num_tokens: int,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        return balanced_loss(self, part, denominators, first, num_tokens)


def in_shards(learner: PolicyLearner, *, seed: int) -> ShardedPolicyLearner:
    """The same learner as one of several processes; its model lends its weights and is whole.

    Args:
        learner: Of the whole policy, before anything was learned.
        seed: Of what is random in the rounding of weights.

    Returns:
        The learner of this process.

    Raises:
        UserError: The optimizer needs whole weights.

    """
    passes = learner.passes
    group = current_process_group(passes.device)
    offload = passes.config.learner.offload
    sharded = shard(learner.model, group, offload=offload)
    optimizer = build_optimizer(sharded.model, passes.config.optimization, seed=seed, group=group)
    given = {each.name: getattr(passes, each.name) for each in fields(passes)}
    given["trainable"] = twin(learner.trainable, sharded.model)
    if passes.critic is not None:
        given["critic"] = ShardedCritic(passes.critic, sharded.model, group, offload=offload)
    reference = None
    if passes.reference is not None:
        split = partial(shard, group=group, offload=offload)
        given["reference"], reference = passes.reference.of_shards(split, sharded.model)
    made = ShardedPolicyLearner(
        passes=ShardedPasses(**given, group=group, sharded=sharded, sharded_reference=reference),
        optimizer=optimizer,
        scratch=learner.scratch,
        beside=learner.beside,
        group=group,
        sharded=sharded,
        whole=learner.trainable,
    )
    made.lend()
    return made
