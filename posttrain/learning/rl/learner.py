"""The policy and everything that learns with it: one optimizer update after the other."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from posttrain.learning.algorithms.objective import denominator, policy_objective
from posttrain.learning.algorithms.part_outputs import MeasuredPast, PartOutputs
from posttrain.learning.models.checkpoint import Checkpointer
from posttrain.learning.models.load import bit_sums
from posttrain.learning.models.optim import Optimizer
from posttrain.learning.rl.batch import (
    TokenValues,
    TrainBatch,
    TrainSample,
    collate,
    lengths_and_groups,
)
from posttrain.learning.rl.beside import Beside
from posttrain.learning.rl.config import RlConfig
from posttrain.learning.rl.credit import training_samples
from posttrain.learning.rl.failures import (
    errors_of_rl,
    keeping_parts,
    naming_culprit,
    refuse_infinite,
)
from posttrain.learning.rl.gap import engine_gap, refuse_gap, token_gap
from posttrain.learning.rl.passes import (
    ModelPasses,
    learned,
    learned_beside_reference,
    watching_router,
)
from posttrain.learning.rl.rollout import (
    Group,
)
from posttrain.learning.training.prepare import Trainable
from posttrain.learning.training.progress import Progress, Stateful

if TYPE_CHECKING:
    from transformers import PreTrainedModel


MAXIMA = ("logprob_gap_max",)
"""Metrics of which the largest counts, and not the mean."""
SUMS = ("value_loss",)
"""Metrics that are parts of the update's loss, divided by its whole denominator: they add up."""


@dataclass
class PolicyLearner:
    """The policy, its optimizer and, where the algorithm asks for them, reference and critic."""

    passes: ModelPasses
    optimizer: Optimizer
    scratch: Path
    beside: Beside = field(default_factory=Beside, kw_only=True)
    """What else is learned from."""
    num_updates: int = field(default=0, init=False)
    past: MeasuredPast = field(default_factory=MeasuredPast, init=False)
    outputs: PartOutputs = field(default_factory=PartOutputs, init=False)
    """What the algorithm's parts gave in the present update."""

    @property
    def trainable(self) -> Trainable:
        """The policy with what its training keeps beside it."""
        return self.passes.trainable

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
        """Say what a checkpoint of a run holds.

        Args:
            parts: Everything with a state, by name.
            checkpointer: Writes and finds the files.

        Returns:
            What saves and restores them together.

        """
        return Progress(parts, checkpointer)

    def finish(self, put_best: Callable[[], None] | None = None) -> None:
        """Make the policy what is to be saved, but for the merging of an adapter.

        Args:
            put_best: Puts other weights in the place of the last ones.

        """
        self.trainable.finish()
        if put_best is not None:
            put_best()

    def training_samples(
        self, groups: Sequence[Group], *, step: int
    ) -> list[list[TrainSample | None]]:
        """Turn the groups of a step into what is learned from; see `training_samples`."""
        # Values that are learned off policy learn first.
        passes, learner = self.passes, self.passes.turn_learner
        if learner is not None:
            learner.learn(groups, passes.config, step=step)
            if not learner.teaches_present(passes.config, step=step):
                return [[None] * len(group) for group in groups]
        return training_samples(groups, passes, step=step)

    def update(
        self, samples: Sequence[TrainSample], *, step: int, index: int, seed: int
    ) -> dict[str, float]:
        """Make one optimizer update, in place.

        Args:
            samples: What it learns from.
            step: 0-based step.
            index: 0-based update of the step.
            seed: Seed of the run, for the batch that is saved where it fails.

        Returns:
            Metrics, as means over the drawn tokens.

        Raises:
            NotFiniteError: Loss or gradient is not finite; the weights are as they were, and the
                batch is saved.

        """
        config, optimization = self.passes.config, self.passes.config.optimization
        critic, reference = self.passes.critic, self.passes.reference
        parts = self._parts(samples, step=step, index=index)
        self.outputs = PartOutputs()
        factor = optimization.factor(
            step * config.updates_per_step + index,
            num_steps=config.steps * config.updates_per_step,
        )
        rate, limit = factor * optimization.learning_rate, optimization.max_grad_norm
        self.optimizer.begin(rate)
        with keeping_parts(parts, self.weights, self.scratch, step=step + 1, seed=seed):
            metrics = self.accumulate(parts, where=f"rl step {step + 1}", first=index == 0)
            if self.beside.rehearsing is not None:
                metrics |= self.beside.rehearsing.add_gradients(self, step=step, index=index)
            with naming_culprit(self.outputs):
                if critic is not None:
                    metrics["value_grad_norm"] = critic.optimizer.clip(limit)
                norm = self.optimizer.step(learning_rate=rate, max_grad_norm=limit)
            if critic is not None:
                # Only now are both gradients known to be finite.
                critic.optimizer.move(factor * config.critic.learning_rate)
        self.num_updates += 1
        self.past.note(metrics, config.algorithm.followed)
        self.trainable.after_step()
        if reference is not None:
            reference.follow(self.model, num_updates=self.num_updates)
            metrics |= reference.measured
        if index == 0 and self.passes.turn_learner is not None:
            metrics |= self.passes.turn_learner.measured
        return metrics | {"grad_norm": norm, "learning_rate": rate}

    def accumulate(
        self, parts: Sequence[TrainBatch], *, where: str, first: bool = True
    ) -> dict[str, float]:
        """Add up the gradient of one update.

        Args:
            parts: The update in micro-batches.
            where: The step, for errors.
            first: True for the first update of a step, which measures the engine's gap.

        Returns:
            Metrics, as means over the drawn tokens.

        Raises:
            NotFiniteError: A loss is not finite.

        """
        whole = whole_denominator(parts, self.passes.config)
        of_critic = whole_denominator([each.for_critic() for each in parts], self.passes.config)
        counts = [part.num_tokens for part in parts]
        router = self.passes.router
        if router is not None:
            with self.trainable.computing():
                router.begin(self.model, [part.routed() for part in parts])
        totals: dict[str, float] = {}
        for number, (part, count) in enumerate(zip(parts, counts, strict=True), start=1):
            denominators = whole, max(1, of_critic)
            loss, metrics = balanced_loss(self, part, denominators, first, sum(counts))
            scalar = float(loss.detach())
            refuse_infinite(scalar, self.outputs, where=where)
            self.optimizer.backward(loss, last=number == len(parts))
            totals["loss"] = totals.get("loss", 0.0) + scalar
            for name, value in metrics.items():
                if name in MAXIMA:
                    totals[name] = max(totals.get(name, 0.0), float(value))
                else:
                    added = float(value)
                    if name not in SUMS:
                        added = added * count / sum(counts)
                    totals[name] = totals.get(name, 0.0) + added
        return totals

    def loss(
        self, batch: TrainBatch, *, denominator: int, first: bool, of_critic: int = 1
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute a part's share of the policy's loss, and of the critic's.

        Args:
            batch: The part.
            denominator: Of the whole update.
            first: True where the engine's gap is to be measured.
            of_critic: Denominator of the critic's loss, where there is one.

        Returns:
            The loss, and metrics as means over the part's drawn tokens.

        """
        passes, algorithm = self.passes, self.passes.config.algorithm
        needs = algorithm.needs
        if "reference_divergence" in needs:
            found, divergences_KBT = learned_beside_reference(passes, batch)
        else:
            found, divergences_KBT = learned(passes, batch.input_ids_BT, batch.mask_BT), None
        new_BT, old_BT = found.logprobs_BT, batch.old_logprobs_BT
        known = replace(
            batch,
            # One update of rollouts that are not stale: the policy before it is this one.
            old_logprobs_BT=new_BT.detach() if old_BT is None else old_BT,
            reference_logprobs_BT=passes.reference_logprobs(batch)
            if "reference" in needs
            else None,
            entropy_BT=found.entropy_BT,
            vocabulary_ratio_BT=passes.vocabulary_ratio(batch)
            if "vocabulary_ratio" in needs
            else None,
            log_all_NV=found.log_all_NV,
            divergences_KBT=divergences_KBT,
        )
        entropy_BT = passes.entropy(batch) if "entropy_gradient" in needs else None
        with errors_of_rl():
            loss, metrics = policy_objective(
                algorithm,
                new_BT,
                batch=known,
                denominator=denominator,
                entropy_BT=entropy_BT,
                outputs=self.outputs,
            )
        if first:
            metrics |= token_gap(new_BT.detach(), batch.sampled_logprobs_BT, batch.mask_BT)
        if passes.critic is not None:
            assert algorithm.critic is not None
            assert batch.returns_BT is not None
            assert batch.values_BT is not None
            valued = batch.for_critic()
            value_loss, more = algorithm.critic.loss(
                passes.values(valued),
                returns_BT=batch.returns_BT,
                old_values_BT=batch.values_BT,
                mask_BT=valued.mask_BT,
                aggregation=algorithm.aggregation,
                denominator=of_critic,
            )
            metrics |= more | {"value_loss": value_loss.detach()}
            loss = loss + value_loss
        return loss, metrics

    def gap(self, groups: Sequence[Group]) -> dict[str, float]:
        """Hold the engine against the policy as it is now; see `engine_gap`."""
        return engine_gap(self.passes, groups)

    def check_gap(self, gap: float) -> None:
        """Stop where engine and trainer disagree by more than the recipe allows."""
        refuse_gap(gap, most=self.passes.config.max_logprob_gap)

    def state_dict(self) -> dict[str, Any]:
        """The number of updates, and what they measured; other parts have states of their own."""
        return {"num_updates": self.num_updates, "past": self.past.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        self.num_updates = int(state["num_updates"])
        self.past.load_state_dict(state["past"])

    def _parts(self, samples: Sequence[TrainSample], *, step: int, index: int) -> list[TrainBatch]:
        """The samples of an update as micro-batches."""
        passes, per_step = self.passes, self.passes.config.updates_per_step

        def position(version: int) -> float:
            behind = (step - version) * per_step
            return behind / (behind + index) if behind > 0 else 0.0

        def positions(sample: TrainSample) -> TokenValues:
            return tuple(map(position, sample.versions or (sample.policy_version,)))

        past_K2 = self.past.of(passes.config.algorithm.followed, device=passes.device)
        chosen = [
            [samples[place] for place in bucket]
            for bucket in passes.buckets(*lengths_and_groups(samples))
        ]
        return [
            collate(
                part,
                pad=passes.pad,
                device=passes.device,
                positions=[positions(sample) for sample in part],
                past_K2=past_K2,
            )
            for part in chosen
        ]


def observe_step(learner: PolicyLearner, metrics: Mapping[str, float], *, step: int) -> None:
    """Let what follows the policy see a step: its reference, and the mask of its tokens.

    Args:
        learner: Its policy is what they follow.
        metrics: Of the step, by full name.
        step: 0-based step that is over.

    """
    passes = learner.passes
    if passes.reference is not None:
        passes.reference.observe(
            metrics, step=step, policy=learner.model, optimizer=learner.optimizer
        )
    if passes.mask is not None:
        passes.mask.observe(learner.model, step=step)


def whole_denominator(parts: Sequence[TrainBatch], config: RlConfig) -> int:
    """Compute what the loss of a whole update is divided by.

    Args:
        parts: All micro-batches of the update.
        config: Algorithm and longest completion.

    Returns:
        A number of tokens or sequences, by the algorithm's aggregation.

    """
    algorithm, longest = config.algorithm, config.longest
    return sum(denominator(algorithm, part.mask_BT, max_tokens=longest) for part in parts)


def balanced_loss(
    learner: PolicyLearner,
    part: TrainBatch,
    denominators: tuple[int, int],
    first: bool,
    num_tokens: int,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Compute the loss of a micro-batch, with what keeps a router even where that is asked for.

    Args:
        learner: Of the policy.
        part: The micro-batch.
        denominators: Of the update, and of its critic: see `PolicyLearner.loss`.
        first: True for the first update of a step.
        num_tokens: Drawn tokens of the update.

    Returns:
        As `PolicyLearner.loss`.

    """
    whole, of_critic = denominators
    router = learner.passes.router
    with watching_router(learner.passes) as routed:
        loss, metrics = learner.loss(part, denominator=whole, of_critic=of_critic, first=first)
    if router is not None:
        term = router.term(routed[0], part.routed())
        loss = loss + router.coefficient * term
        # A metric is a mean over the part's tokens, and this is a share of the update's.
        metrics["router_loss"] = term.detach() * num_tokens / max(1, part.num_tokens)
    return loss, metrics
