"""Parameters of reinforcement learning, but for what samples: that is the stage's."""

import sys
from collections.abc import Iterator
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from posttrain.learning.algorithms.check import note_on_ratio
from posttrain.learning.algorithms.config import Algorithm
from posttrain.learning.algorithms.presets import AlgorithmConfig
from posttrain.learning.rewards.config import RewardStack, refuse_other_temperature
from posttrain.learning.rl.config_checks import (
    check_ahead,
    check_algorithm,
    refuse_beside_masks,
    refuse_carried_instructions,
    refuse_carried_schedules,
    refuse_one_name_twice,
    refuse_other_critics,
    refuse_other_learners,
    refuse_under_mask,
    refuse_unweighed,
)
from posttrain.learning.rl.draw_config import PLAIN, DrawConfig, ProducerConfig
from posttrain.learning.rl.metrics import (
    METRICS,
    PartMetric,
    of_parts,
    refuse_unmeasured,
    unmeasured,
)
from posttrain.learning.rl.model_config import (
    FROZEN,
    ReferenceConfig,
    RlLearnerConfig,
    ValueModelConfig,
)
from posttrain.learning.rl.stop import StopConfig
from posttrain.learning.rl.updates_config import (
    RlOptimization,
    UpdatesConfig,
    refuse_in_backward,
)
from posttrain.learning.rollouts.sampling import MaxTokens
from posttrain.learning.training.config import (
    AlarmsConfig,
    refuse_blind,
    refuse_idle_rounding,
    usual_alarms,
)
from posttrain.stage.config import UNKEYED
from posttrain.stage.schedule import Schedulable, at, schedules_in
from posttrain.stage.slots import name_of


class RlConfig(Schedulable):
    """Rollouts, advantages, loss and optimization."""

    IDENTITY_OF: ClassVar[str] = "rl"
    # A method is the same whatever it runs on, and at any budget of steps.
    MECHANICS = frozenset({"steps", "max_logprob_gap", "alarms", "checkpoint_every", "ahead"})
    FIXED: ClassVar[frozenset[str]] = frozenset({"steps", "staleness", "checkpoint_every", "ahead"})
    algorithm: AlgorithmConfig = Algorithm()
    """A preset's name, or a preset with some switches set otherwise."""
    reward: RewardStack = RewardStack()
    """What an answer earns: named components, how they are combined, which one says solved."""
    steps: int = Field(120, ge=1)
    """Rounds of sampling and learning."""
    problems_per_step: int = Field(32, ge=1)
    """Problems drawn per step, by `draw.sampler`."""
    group_size: int = Field(8, ge=1)
    """Rollouts per problem."""
    draw: DrawConfig = DrawConfig()
    """Which problems are practiced on, and which of their groups are learned from."""
    producer: ProducerConfig = PLAIN
    """How the rollouts of a problem come about: `plain`, or a mapping with a kind."""
    staleness: int = Field(0, ge=0)
    """Steps by which sampling runs ahead of learning; older rollouts are dropped and counted."""
    ahead: Annotated[int, UNKEYED] = Field(0, ge=0)
    """Processes that draw for later steps while the learner works, to the same bits; 0 leaves that
    to the learner's own process, in between. At most `staleness`; each holds the policy."""
    temperature: float = Field(1.0, gt=0.0)
    """Sampling temperature; log-probabilities are taken at the same one."""
    max_tokens: MaxTokens = "auto"
    """Longest completion, in tokens; `auto` goes by the answers that the policy was taught."""
    optimization: RlOptimization = RlOptimization()
    """Optimizer, learning rate and its schedule."""
    updates: UpdatesConfig = UpdatesConfig()
    """How the rollouts of a step are portioned into optimizer updates."""
    reference: ReferenceConfig = FROZEN
    """What becomes of the reference policy."""
    critic: ValueModelConfig = ValueModelConfig()
    """The value model, where the algorithm asks for one."""
    learner: RlLearnerConfig = RlLearnerConfig()
    """Precision, adapters, activation checkpointing, averaging of what is saved, and what is kept
    to be looked at."""
    max_logprob_gap: float = Field(0.05, gt=0.0)
    """Largest mean gap, in nats, between the engine's log-probabilities and the trainer's."""
    stop: StopConfig | None = None
    """A rule for stopping before the last step; none trains all of them."""
    # What is learned is the same: an alarm ends a run that has no result yet, or says something.
    alarms: Annotated[AlarmsConfig, UNKEYED] = Field(default_factory=usual_alarms)
    """What is watched from step to step, and warns or stops; names all alarms that there are."""
    checkpoint_every: Annotated[int, UNKEYED] = Field(10, ge=0)
    """Optimizer updates between resumable checkpoints; 0 writes none."""

    @property
    def oldest(self) -> int:
        """Most steps that a policy which drew something is behind the one that learns from it."""
        return self.staleness + self.producer.carried

    @property
    def updates_per_step(self) -> int:
        """Optimizer updates that a step with enough groups makes."""
        return self.updates.epochs * self.updates.minibatches

    @property
    def limit(self) -> int | None:
        """Most tokens of one answer; None while that is `auto`: see `generation.with_limit`."""
        return None if self.max_tokens == "auto" else self.max_tokens

    @property
    def longest(self) -> int | None:
        """Most tokens that a rollout may draw, all turns together; None as for `limit`.

        Where schedules were not applied yet it is that of the first step.
        """
        return self.limit and at(self.producer, 0, {}).longest(self.limit)

    @property
    def algorithm_at_work(self) -> Algorithm:
        """The algorithm, with what the reward says of answers that were cut off."""
        if self.reward.truncated != "masked":
            return self.algorithm
        advantage = self.algorithm.advantage.model_copy(update={"truncated": "mask"})
        return self.algorithm.model_copy(update={"advantage": advantage})

    @property
    def owners(self) -> dict[str, str]:
        """Name the parts that give states of their own, by what a checkpoint calls the states."""
        instructor = self.draw.instructions
        mask = self.draw.mask
        return {
            "curriculum": f"rl: {name_of(self.draw.sampler)}",
            "producer": f"rl: {name_of(self.producer)}",
            "reward": f"rl: {name_of(self.reward.combine)}",
            **({} if instructor is None else {"instructions": f"rl: {name_of(instructor)}"}),
            **({} if mask is None else {"action_mask": f"rl: {name_of(mask)}"}),
        }

    @property
    def part_metrics(self) -> dict[str, str]:
        """Slot and kind of the part that declares it, by the name of a metric."""
        return {each.name: each.part for each in self._of_parts()}

    @property
    def note_on_ratio(self) -> str | None:
        """Where a ratio stays 1, so that its surrogate is the plain policy gradient."""
        return note_on_ratio(
            self.algorithm, updates_per_step=self.updates_per_step, oldest=self.oldest
        )

    def remarks(self) -> tuple[str, ...]:
        """Say where a ratio stays 1; see `StageConfig.remarks`."""
        return (self.note_on_ratio,) if self.note_on_ratio else ()

    def metrics(self) -> dict[str, str]:
        """Describe what the steps of this config measure.

        Returns:
            A sentence by name, as in the curve. What counts rollouts without a judgment, or those
            that are masked, is only in the steps that have such.

        """
        lacking = _lacking(self)
        own = {name: about for name, about in METRICS.items() if name not in lacking}
        return own | {each.name: each.description for each in self._of_parts()}

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        check_algorithm(
            self.algorithm,
            self.reward,
            group_size=self.draw.select.learned(self.group_size),
            # What a policy was taught is not known yet: no length contradicts it.
            max_tokens=self.longest or sys.maxsize,
            updates_per_step=self.updates_per_step,
            oldest=self.oldest,
            gives=self.producer.GIVES,
        )
        if self.updates.minibatches > self.problems_per_step:
            raise ValueError(
                f"updates.minibatches {self.updates.minibatches} exceeds"
                f" problems_per_step {self.problems_per_step}, and a group is never split;"
                " lower minibatches"
            )
        if self.reference.MOVES and not self.algorithm.uses_reference:
            raise ValueError(
                f"reference.kind is {self.reference.kind}, but the algorithm has no kl, so no"
                " reference is asked; add algorithm.regularizers.kl, or leave reference out"
            )
        refuse_other_temperature(self.reward, self.temperature)
        refuse_other_critics(self.algorithm, self.critic)
        refuse_unweighed(self.algorithm, self.draw.additions)
        refuse_carried_instructions(self.producer, self.draw.instructions)
        refuse_beside_masks(
            self.producer,
            self.algorithm,
            mask=self.draw.mask is not None,
            addition=self.draw.additions is not None,
        )
        if self.draw.mask is not None:
            refuse_under_mask(
                self.draw.mask, self.algorithm, self.updates, self.learner, oldest=self.oldest
            )
        refuse_one_name_twice(self._of_parts())
        self._check_metrics()
        if self.stop is not None and self.stop.keep == "best" and self.oldest:
            why = f"staleness {self.staleness}" if self.staleness else "what producer carries over"
            raise ValueError(
                f"stop.keep best keeps the policy that a step's rollouts are of, but {why} makes"
                " that an older one; set staleness to 0 and carry nothing over, or keep to last"
            )
        refuse_other_learners(self.learner, self.reference)
        refuse_idle_rounding(self.learner, self.optimization.rounding)
        if self.optimization.in_backward:
            refuse_in_backward(self.updates, has_critic=self.algorithm.critic is not None)
        self._check_schedules()
        check_ahead(
            self.ahead,
            staleness=self.staleness,
            max_rounds=self.draw.max_rounds,
            addition=self.draw.additions,
        )
        if self.staleness >= self.steps:
            raise ValueError(
                f"staleness {self.staleness} is not below steps {self.steps}, so all rollouts would"
                " come from the first policy; lower staleness"
            )
        return self

    def _of_parts(self) -> Iterator[PartMetric]:
        """What the parts of a run measure."""
        yield from of_parts(self.algorithm, self.draw, self.reward, self.updates)
        for name, description in self.reference.METRICS.items():
            yield PartMetric(f"rl/{name}", name_of(self.reference), description)

    def _refuse_schedules(self) -> None:
        # The numbers of this very config are schedules only after its validators.
        self._check_metrics()
        refuse_carried_schedules(self.producer, dict(schedules_in(self)))

    def _check_metrics(self) -> None:
        """Refuse a metric that no step of this run measures, by whatever it is followed."""
        followed = {path: number.metric for path, number in schedules_in(self) if number.metric}
        if self.stop is not None:
            followed["stop.metric"] = self.stop.metric
        if self.reference.follows is not None:
            followed["reference.metric"] = self.reference.follows
        refuse_blind(self.alarms, (n.removeprefix("rl/") for n in self.metrics()), where="alarms")
        lacking = _lacking(self)
        for path, metric in followed.items():
            refuse_unmeasured(
                metric, self.metrics(), lacking, sampler=self.draw.sampler, where=path
            )

    def _check_schedules(self) -> None:
        """Refuse schedules of what is started once, and two schedules of one number."""
        for name in ("draw", "producer"):
            for path, _ in schedules_in(getattr(self, name), name):
                if name == "producer" and self.producer.FOLLOWS:
                    continue
                raise ValueError(
                    f"{path} is a schedule, but the numbers below {name} are read once, before the"
                    " first step; write a plain number there"
                )
        if self.staleness:
            for path, _ in schedules_in(self.producer, "producer"):
                raise ValueError(
                    f"{path} is a schedule, and staleness {self.staleness} learns from what was"
                    " drawn by an earlier number; set staleness to 0, or write a plain number there"
                )
        for path, _ in schedules_in(self.critic, "critic"):
            if not self.optimization.is_constant:
                raise ValueError(
                    f"{path} is a schedule, and those of optimization would multiply it;"
                    " set optimization.lr_schedule to constant and optimization.warmup_steps to 0"
                )


def _lacking(config: RlConfig) -> dict[str, str]:
    """Why a run does not measure what others do, by name."""
    return unmeasured(
        config.algorithm,
        oldest=config.oldest,
        carried=config.producer.carried,
        routed=config.learner.router_loss is not None,
    )
