"""The policy and everything that learns with it: credit for rollouts, and one optimiser update."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from posttrain.data.batching import length_buckets
from posttrain.learning.algorithms.credit import advantages
from posttrain.learning.algorithms.objective import (
    PolicyBatch,
    denominator,
    policy_objective,
    value_objective,
)
from posttrain.learning.maths.entropy import entropy_from_hidden, entropy_from_logits
from posttrain.learning.maths.reduce import masked_mean
from posttrain.learning.models.checkpoint import Checkpointer
from posttrain.learning.models.final_logits import final_logits
from posttrain.learning.models.load import bit_sums
from posttrain.learning.models.logprobs import hidden_states, token_logprobs
from posttrain.learning.models.optim import NotFiniteError, Optimizer
from posttrain.learning.rl.batch import Lesson, LessonBatch, collate
from posttrain.learning.rl.config import RlConfig
from posttrain.learning.rl.credit import outcomes, token_rows
from posttrain.learning.rl.critic import Critic
from posttrain.learning.rl.reference import Reference
from posttrain.learning.rl.rollout import Group, Rollout
from posttrain.learning.training.failed_batch import kept_for_replay
from posttrain.learning.training.prepare import Trainable
from posttrain.learning.training.progress import Progress, Stateful
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

MAXIMA = ("logprob_gap_max",)


@dataclass
class Learner:
    """The policy, its optimiser and, where the algorithm asks for them, reference and critic."""

    trainable: Trainable
    optimizer: Optimizer
    reference: Reference | None
    critic: Critic | None
    config: RlConfig
    pad: int
    device: str
    scratch: Path
    num_updates: int = field(default=0, init=False)

    @property
    def model(self) -> "PreTrainedModel":
        """The policy."""
        return self.trainable.model

    def fingerprint(self) -> object:
        """Equal to an earlier one where no weight that is trained has changed since."""
        return bit_sums(p for p in self.model.parameters() if p.requires_grad)

    def weights(self) -> Any:
        """Something with the state dict of the whole policy."""
        return self.model

    def progress(self, parts: Mapping[str, Stateful], checkpointer: Checkpointer) -> Progress:
        """What a checkpoint of a run with these parts holds."""
        return Progress(parts, checkpointer)

    def finish(self) -> None:
        """Make the policy what is to be saved, but for the merging of an adapter."""
        self.trainable.finish()

    def lessons(self, groups: Sequence[Group], *, step: int) -> list[list[Lesson]]:
        """Credit for the groups of 0-based `step`, token by token, before its first update.

        What needs a model (a critic's values, a divergence in the reward, log-probabilities of
        the policy as it is now) is computed here once, and stays as it is through all updates.
        Rollouts that bear no loss (cut off, where the algorithm does not keep those, or not to be
        judged) have no lesson, so no denominator counts them.
        """
        algorithm, rollouts = self.config.algorithm, [r for group in groups for r in group]
        if not rollouts:
            return []
        in_reward = algorithm.kl is not None and algorithm.kl.place == "reward"
        columns: dict[str, list[list[float]]] = {}
        values = self._rows(rollouts, self._values) if self.critic is not None else None
        credit = advantages(
            algorithm,
            outcomes(
                rollouts,
                reference=self._rows(rollouts, self._reference_logprobs) if in_reward else None,
                values=values,
            ),
            max_tokens=self.config.max_tokens,
        )
        if values is not None and credit.returns_BT is not None:
            columns |= {"values": values, "returns": token_rows(credit.returns_BT, rollouts)}
        if self._needs_old_logprobs(rollouts, step=step):
            columns["old_logprobs"] = self._rows(rollouts, self._present_logprobs)
        rows = [
            Lesson.of(rollout, credited, **{name: columns[name][i] for name in columns})
            for i, (rollout, credited) in enumerate(
                zip(rollouts, token_rows(credit.advantages_BT, rollouts), strict=True)
            )
        ]
        found = iter(zip(rows, credit.bears_loss_B.tolist(), strict=True))
        taught = [[row for row, bears in islice(found, len(group)) if bears] for group in groups]
        return [group for group in taught if group]

    def update(
        self, lessons: Sequence[Lesson], *, step: int, index: int, seed: int
    ) -> dict[str, float]:
        """Update `index` of 0-based `step`, in place; its metrics as means over the drawn tokens.

        A loss or gradient that is not finite stops the run before the weights move, with the
        batch saved.
        """
        config, optimization = self.config, self.config.optimization
        parts = self._parts(lessons, step=step, index=index)
        factor = optimization.factor(
            step * config.updates_per_step + index,
            num_steps=config.steps * config.updates_per_step,
        )
        rate, limit = factor * optimization.learning_rate, optimization.max_grad_norm
        with kept_for_replay(self.scratch, self.weights(), parts, step=step + 1, seed=seed):
            metrics = self.accumulate(parts, where=f"rl step {step + 1}", first=index == 0)
            if self.critic is not None:
                norm = self.critic.optimizer.step(
                    learning_rate=factor * config.critic.learning_rate, max_grad_norm=limit
                )
                metrics["value_grad_norm"] = norm
            norm = self.optimizer.step(learning_rate=rate, max_grad_norm=limit)
        self.num_updates += 1
        self.trainable.after_step()
        if self.reference is not None:
            self.reference.follow(self.model, num_updates=self.num_updates)
        return metrics | {"grad_norm": norm, "learning_rate": rate}

    def accumulate(
        self, parts: Sequence[LessonBatch], *, where: str, first: bool = True
    ) -> dict[str, float]:
        """Add up the gradient of one update; its metrics as means over the drawn tokens."""
        algorithm, limit = self.config.algorithm, self.config.max_tokens
        whole = sum(denominator(algorithm, part.mask_BT, max_tokens=limit) for part in parts)
        counts = [part.num_tokens for part in parts]
        totals: dict[str, float] = {}
        for part, count in zip(parts, counts, strict=True):
            loss, metrics = self._loss(part, denominator=whole, first=first)
            scalar = float(loss.detach())
            self.check_finite(scalar, where=where)
            loss.backward()  # type: ignore[no-untyped-call]
            totals["loss"] = totals.get("loss", 0.0) + scalar
            for name, value in metrics.items():
                if name in MAXIMA:
                    totals[name] = max(totals.get(name, 0.0), float(value))
                else:
                    share = float(value) * count / sum(counts)
                    totals[name] = totals.get(name, 0.0) + share
        return totals

    def check_finite(self, loss: float, *, where: str) -> None:
        """Stop training at a loss that is not a number."""
        if not math.isfinite(loss):
            raise NotFiniteError(
                f"{where}: the loss is {loss}, so training stopped;"
                " lower the learning rate, or raise the temperature if it is near 0"
            )

    def gap(self, rollouts: Sequence[Rollout]) -> dict[str, float]:
        """The sampler's log-probabilities against those of the policy as it is now, by tokens."""
        now = [v for row in self._rows(rollouts, self._present_logprobs) for v in row]
        then = [v for rollout in rollouts for v in rollout.logprobs]
        mask_N = torch.ones(len(now), dtype=torch.bool)
        return {
            name: float(value)
            for name, value in _gap(torch.tensor(now), torch.tensor(then), mask_N).items()
        }

    def check_gap(self, gap: float) -> None:
        """Stop where sampler and trainer disagree by more than the recipe allows."""
        if not gap <= self.config.max_logprob_gap:
            raise UserError(
                f"rl: the sampler's log-probabilities differ from the trainer's by {gap:.4f} nats"
                f" per token, more than max_logprob_gap {self.config.max_logprob_gap}; the sampler"
                " has stale weights or computes something else"
            )

    def state_dict(self) -> dict[str, Any]:
        """The number of updates; the other parts have states of their own."""
        return {"num_updates": self.num_updates}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        self.num_updates = int(state["num_updates"])

    def _needs_old_logprobs(self, rollouts: Sequence[Rollout], *, step: int) -> bool:
        """Whether the policy before the first update is neither the sampler nor the present one."""
        if self.config.algorithm.correction.old != "recomputed":
            return False
        stale = any(rollout.policy_version != step for rollout in rollouts)
        return stale or self.config.updates_per_step > 1

    def _parts(self, lessons: Sequence[Lesson], *, step: int, index: int) -> list[LessonBatch]:
        per_step = self.config.updates_per_step

        def position(lesson: Lesson) -> float:
            behind = (step - lesson.policy_version) * per_step
            return behind / (behind + index) if behind > 0 else 0.0

        chosen = [[lessons[i] for i in bucket] for bucket in self._buckets(lessons)]
        return [
            collate(
                part,
                pad=self.pad,
                device=self.device,
                positions=[position(lesson) for lesson in part],
            )
            for part in chosen
        ]

    def _loss(
        self, batch: LessonBatch, *, denominator: int, first: bool
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The part's share of the policy's loss, and of the critic's."""
        algorithm, mask_BT = self.config.algorithm, batch.mask_BT
        new_BT = self._logprobs(self.model, batch)
        old_BT = batch.old_logprobs_BT
        penalised = algorithm.kl is not None and algorithm.kl.place == "loss"
        exact = algorithm.entropy is not None and algorithm.entropy.place == "loss"
        loss, metrics = policy_objective(
            algorithm,
            new_BT,
            batch=PolicyBatch(
                mask_BT=mask_BT,
                advantages_BT=batch.advantages_BT,
                sampled_logprobs_BT=batch.sampled_logprobs_BT,
                # One update of rollouts that are not stale: the policy before it is this one.
                old_logprobs_BT=new_BT.detach() if old_BT is None else old_BT,
                position_BT=batch.position_BT,
                reference_logprobs_BT=self._reference_logprobs(batch) if penalised else None,
            ),
            denominator=denominator,
            entropy_BT=self._entropy(batch) if exact else None,
        )
        del metrics["logprob_gap"]
        if exact:
            # `entropy` is the estimate from all rollouts that were drawn.
            metrics["entropy_exact"] = metrics.pop("entropy")
        if first:
            metrics |= _gap(new_BT.detach(), batch.sampled_logprobs_BT, mask_BT)
        if self.critic is not None:
            assert batch.returns_BT is not None
            assert batch.values_BT is not None
            with self.trainable.computing():
                values_BT = self.critic.values(batch)
            value_loss, more = value_objective(
                algorithm,
                values_BT,
                returns_BT=batch.returns_BT,
                old_values_BT=batch.values_BT,
                mask_BT=mask_BT,
                denominator=denominator,
            )
            metrics |= more | {"value_loss": value_loss.detach()}
            loss = loss + value_loss
        return loss, metrics

    def _logprobs(self, model: "PreTrainedModel", batch: LessonBatch) -> Tensor:
        with self.trainable.computing():
            return token_logprobs(
                model,
                batch.input_ids_BT,
                wanted_BT=batch.mask_BT,
                temperature=self.config.temperature,
            ).logprobs_BT

    def _present_logprobs(self, batch: LessonBatch) -> Tensor:
        with torch.no_grad():
            return self._logprobs(self.model, batch)

    def _reference_logprobs(self, batch: LessonBatch) -> Tensor:
        assert self.reference is not None
        with torch.no_grad():
            return self._logprobs(self.reference.model, batch)

    def _values(self, batch: LessonBatch) -> Tensor:
        assert self.critic is not None
        with torch.no_grad(), self.trainable.computing():
            return self.critic.values(batch)

    def _entropy(self, batch: LessonBatch) -> Tensor:
        """Exact entropy at the drawn tokens, with gradient; 0 at the others. ``[B, T]``."""
        with self.trainable.computing():
            hidden_BTD = hidden_states(self.model, batch.input_ids_BT)[:, :-1].float()
        head: Any = self.model.get_output_embeddings()
        hidden_ND = hidden_BTD[batch.mask_BT[:, 1:]]
        final = final_logits(self.model.config)
        if final.changes_nothing and head.bias is None:
            entropy_N = entropy_from_hidden(hidden_ND / self.config.temperature, head.weight)
        else:
            logits_NV = final(F.linear(hidden_ND, head.weight, head.bias))
            entropy_N = entropy_from_logits(logits_NV / self.config.temperature)
        zeros_BT = entropy_N.new_zeros(batch.mask_BT.shape)
        return zeros_BT.masked_scatter(batch.mask_BT, entropy_N)

    def _rows(self, rollouts: Sequence[Rollout], compute: Any) -> list[list[float]]:
        """One number per drawn token of every rollout, computed in batches of similar length."""
        lessons = [Lesson.of(r, [0.0] * r.num_drawn) for r in rollouts]
        found = self._found(lessons, compute)
        return [found[i] for i in range(len(lessons))]

    def _found(self, lessons: Sequence[Lesson], compute: Any) -> dict[int, list[float]]:
        """By place of the lesson."""
        rows: dict[int, list[float]] = {}
        for bucket in self._buckets(lessons):
            rows |= self._rows_of(bucket, lessons, compute)
        return rows

    def _rows_of(
        self, bucket: Sequence[int], lessons: Sequence[Lesson], compute: Any
    ) -> dict[int, list[float]]:
        batch = collate([lessons[i] for i in bucket], pad=self.pad, device=self.device)
        values = zip(bucket, compute(batch), batch.mask_BT, strict=True)
        return {place: values_T[mask_T].tolist() for place, values_T, mask_T in values}

    def _buckets(self, lessons: Sequence[Lesson]) -> list[list[int]]:
        """Places of the lessons that go through the model together."""
        lengths = [lesson.num_tokens for lesson in lessons]
        budget = self.config.updates.micro_batch_tokens
        return length_buckets(range(len(lessons)), lengths, budget)


def _gap(new: Tensor, sampled: Tensor, mask: Tensor) -> dict[str, Tensor]:
    """Distance of the trainer's log-probabilities from the sampler's, over the drawn tokens."""
    difference = torch.where(mask, new - sampled, 0.0)
    # k3 of KL(sampler || trainer): never negative, and 0 where they agree.
    divergence = torch.expm1(difference) - difference
    return {
        "logprob_gap": masked_mean(difference.abs(), mask),
        "logprob_gap_max": difference.abs().max(),
        "logprob_gap_k3": masked_mean(divergence, mask),
    }
