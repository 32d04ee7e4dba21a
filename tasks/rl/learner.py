"""One step's optimiser updates on its rollouts."""

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from posttrain.data.batching import length_buckets
from posttrain.errors import UserError
from posttrain.maths.kl import kl_estimate, kl_loss
from posttrain.maths.policy_loss import policy_loss
from posttrain.maths.ratios import log_ratio, ratio_metrics
from posttrain.maths.reduce import masked_mean
from posttrain.maths.surrogates import clipped
from posttrain.models.logprobs import token_logprobs
from posttrain.models.optim import Optimizer, learning_rate_factor
from tasks.rl.config import RlConfig
from tasks.rl.rollout import Rollout, RolloutBatch, collate

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class Learner:
    """The policy, its optimiser and, where a KL coefficient asks for one, the reference."""

    model: "PreTrainedModel"
    optimizer: Optimizer
    reference: "PreTrainedModel | None"
    config: RlConfig
    pad: int
    device: str

    def learn(
        self, groups: Sequence[Sequence[Rollout]], *, step: int, seed: int
    ) -> dict[str, float]:
        """All updates of 0-based `step` on groups that have signal; mean metrics of the updates.

        The sampler's log-probabilities are the old ones throughout. At the first update the policy
        still is the sampler, so what the two differ by then is numerical error: `logprob_gap`.
        """
        per_step = self.config.epochs * self.config.minibatches
        totals: dict[str, list[float]] = {}
        for update, part in enumerate(self._minibatches(groups, step=step, seed=seed)):
            rollouts = [rollout for group in part for rollout in group]
            metrics = self._accumulate(rollouts, where=f"rl step {step + 1}")
            if update == 0:
                self._check_gap(metrics["logprob_gap"])
            else:
                del metrics["logprob_gap"]
            factor = learning_rate_factor(
                step * per_step + update,
                num_steps=self.config.steps * per_step,
                schedule=self.config.schedule,
                warmup_steps=self.config.warmup_steps,
            )
            norm = self.optimizer.step(factor=factor, max_grad_norm=self.config.max_grad_norm)
            metrics |= {"grad_norm": norm, "learning_rate": factor * self.config.learning_rate}
            for name, value in metrics.items():
                totals.setdefault(name, []).append(value)
        return {name: math.fsum(values) / len(values) for name, values in totals.items()}

    def _minibatches(
        self, groups: Sequence[Sequence[Rollout]], *, step: int, seed: int
    ) -> Iterator[list[Sequence[Rollout]]]:
        """Whole groups, shuffled anew in every epoch."""
        num_parts = min(self.config.minibatches, len(groups))
        for epoch in range(self.config.epochs):
            order = list(groups)
            if epoch or num_parts > 1:
                random.Random(f"{seed}:minibatches:{step}:{epoch}").shuffle(order)
            for index in range(num_parts):
                yield order[index::num_parts]

    def _accumulate(self, rollouts: Sequence[Rollout], *, where: str) -> dict[str, float]:
        """Add up the gradient of one minibatch; its metrics as means over the drawn tokens."""
        num_tokens = sum(len(rollout.attempt.sample.token_ids) for rollout in rollouts)
        lengths = [len(rollout.ids) for rollout in rollouts]
        totals: dict[str, float] = {}
        rows = range(len(rollouts))
        for bucket in length_buckets(rows, lengths, self.config.micro_batch_tokens):
            batch = collate([rollouts[i] for i in bucket], pad=self.pad, device=self.device)
            loss, metrics = self._loss(batch, denominator=num_tokens)
            scalar = float(loss.detach())
            if not math.isfinite(scalar):
                raise UserError(
                    f"{where}: the loss is {scalar}, so training stopped;"
                    " lower the learning rate, or raise the temperature if it is near 0"
                )
            loss.backward()  # type: ignore[no-untyped-call]
            totals["loss"] = totals.get("loss", 0.0) + scalar
            for name, value in metrics.items():
                share = float(value) * batch.num_tokens / num_tokens
                totals[name] = totals.get(name, 0.0) + share
        return totals

    def _loss(
        self, batch: RolloutBatch, *, denominator: int
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Clipped surrogate, token mean, plus entropy and divergence where they have a weight."""
        config, mask_BT, old_BT = self.config, batch.mask_BT, batch.sampled_logprobs_BT
        new_BT = token_logprobs(
            self.model, batch.input_ids_BT, wanted_BT=mask_BT, temperature=config.temperature
        ).logprobs_BT
        log_ratio_BT = log_ratio(new_BT, old_BT, mask_BT=mask_BT, level="token")
        # -log p as a reward has the entropy's gradient, as the score has mean 0 (Williams, 1992).
        advantages_BT = batch.advantages_B[:, None] - config.entropy_coefficient * old_BT
        surrogate = clipped(log_ratio_BT, advantages_BT, low=config.clip_low, high=config.clip_high)
        loss, metrics = policy_loss(
            surrogate, mask_BT, aggregation="token_mean", denominator=denominator
        )
        metrics |= ratio_metrics(log_ratio_BT, mask_BT)
        metrics["logprob_gap"] = masked_mean(log_ratio_BT.detach().abs(), mask_BT)
        if self.reference is not None:
            with torch.no_grad():
                reference_BT = token_logprobs(
                    self.reference,
                    batch.input_ids_BT,
                    wanted_BT=mask_BT,
                    temperature=config.temperature,
                ).logprobs_BT
            penalty, more = kl_loss(
                kl_estimate(new_BT, reference_BT, estimator="k3"),
                mask_BT,
                coefficient=config.kl_coefficient,
                aggregation="token_mean",
                denominator=denominator,
                log_ratio_BT=log_ratio_BT,
            )
            loss, metrics = loss + penalty, metrics | more
        return loss, metrics

    def _check_gap(self, gap: float) -> None:
        if not gap <= self.config.max_logprob_gap:
            raise UserError(
                f"rl: the sampler's log-probabilities differ from the trainer's by {gap:.4f} nats"
                f" per token, more than max_logprob_gap {self.config.max_logprob_gap}; the sampler"
                " has stale weights or computes something else"
            )
