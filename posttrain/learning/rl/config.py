"""Parameters of reinforcement learning."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from posttrain.learning.algorithms.advantage_config import GroupAdvantage
from posttrain.learning.algorithms.check import check, check_on_policy
from posttrain.learning.algorithms.choice import Chosen
from posttrain.learning.algorithms.config import Algorithm
from posttrain.learning.curriculum.base import ProblemSampler
from posttrain.learning.curriculum.registry import PROBLEM_SAMPLERS
from posttrain.learning.curriculum.solve_rate import SolveRate
from posttrain.learning.rl.metrics import CURRICULUM, METRICS
from posttrain.learning.rollouts.engines.config import EngineConfig, TorchEngine
from posttrain.learning.training.config import LearnerConfig
from posttrain.learning.training.stopping import StoppingConfig
from posttrain.stage.config import StageConfig
from posttrain.stage.errors import UserError, nearest
from posttrain.stage.slots import InSlot


class DrawConfig(StageConfig):
    """Which problems are practised on, and which of their groups are learnt from."""

    sampler: Annotated[ProblemSampler, InSlot(PROBLEM_SAMPLERS)] = SolveRate()
    """Chooses the problems: `solve_rate`, `uniform`, or a mapping with a kind and its settings."""
    sources: dict[str, float] = Field(default_factory=dict)
    """Share of the problems that each source gives; empty leaves it to the sampler."""
    max_rounds: int = Field(default=1, ge=1)
    """Rounds of sampling per step; above 1, groups without signal are made up for."""
    train_on: Literal["signal", "all"] = "signal"
    """Groups whose advantages are not all 0, or every group (equal ones fill the denominator)."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for name, share in self.sources.items():
            if not 0 < share < float("inf"):
                raise ValueError(
                    f"the share of source '{name}' is {share}; make it a positive number,"
                    " or leave the source out"
                )
        if self.max_rounds > 1 and self.train_on == "all":
            raise ValueError(
                "max_rounds above 1 makes up for groups without signal, but train_on all learns"
                " from those too; set train_on to signal, or max_rounds to 1"
            )
        return self


class OptimisationConfig(StageConfig):
    """How the rollouts of a step become optimiser updates."""

    MECHANICS = frozenset({"micro_batch_tokens"})
    schedule: Literal["constant", "linear", "cosine"] = "linear"
    """Shape of the learning rate after the warm-up; a falling one keeps what large steps found."""
    warmup_steps: int = Field(default=5, ge=0)
    """Optimiser updates over which the learning rate rises."""
    max_grad_norm: float = Field(default=1.0, gt=0.0)
    """Gradients of a larger norm are scaled down to it."""
    epochs: int = Field(default=1, ge=1)
    """Passes over the rollouts of a step."""
    minibatches: int = Field(default=1, ge=1)
    """Optimiser updates per pass, each on whole groups."""
    micro_batch_tokens: int = Field(default=4096, ge=1)
    """Padded tokens of one forward pass; a small one pads little, and gives the same gradient."""


class ReferenceConfig(StageConfig):
    """What becomes of the reference policy while the policy moves on."""

    kind: Literal["frozen", "ema", "periodic"] = "frozen"
    """It stays, follows as a moving average, or is made the policy now and then."""
    decay: float | None = Field(default=None, gt=0.0, lt=1.0)
    """Weight of its own past in the moving average, per optimiser update."""
    every: int | None = Field(default=None, ge=1)
    """Optimiser updates between two periodic refreshes."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for name, value, kind in (("decay", self.decay, "ema"), ("every", self.every, "periodic")):
            if kind == self.kind and value is None:
                raise ValueError(f"kind {kind} needs {name}; set it")
            if kind != self.kind and value is not None:
                raise ValueError(
                    f"{name} is for kind {kind}, but kind is {self.kind};"
                    f" set kind to {kind}, or leave {name} out"
                )
        return self


class ValueModelConfig(StageConfig):
    """The value model of an algorithm that asks for one."""

    trunk: Literal["own", "shared"] = "own"
    """A copy of the starting policy below the value head, or the policy itself."""
    learning_rate: float = Field(default=1e-3, gt=0.0)
    """Of the value head, and of its own trunk."""


class StopConfig(StoppingConfig):
    """When to stop before the last step."""

    metric: str = "rl/reward"
    """One of the metrics of a step."""
    better: Literal["higher", "lower"] = "higher"
    """Which way is good."""
    patience: int = Field(default=20, ge=1)
    """Steps in a row that may be no better than the best before training stops."""
    target: float | None = None
    """Stop as soon as the metric is this good, too; none waits for `patience` alone."""

    @field_validator("metric")
    @classmethod
    def _known(cls, metric: str) -> str:
        # What a problem sampler measures, only it knows; `RlConfig` asks it.
        if metric not in METRICS and not metric.startswith(CURRICULUM):
            raise ValueError(f"no metric is called '{metric}'{nearest(metric, METRICS)}")
        return metric


class RlConfig(StageConfig):
    """Rollouts, advantages, loss and optimisation."""

    IDENTITY_OF: ClassVar[str] = "rl"
    # A method is the same whatever it runs on, and at any budget of steps.
    MECHANICS = frozenset({"steps", "engine", "max_logprob_gap", "checkpoint_every"})
    algorithm: Chosen = Algorithm()
    """A preset's name, or a preset with some switches set otherwise."""
    steps: int = Field(120, ge=1)
    """Rounds of sampling and learning."""
    problems_per_step: int = Field(32, ge=1)
    """Problems drawn per step, by `draw.sampler`."""
    group_size: int = Field(8, ge=1)
    """Rollouts per problem."""
    draw: DrawConfig = DrawConfig()
    """Which problems are practised on, and which of their groups are learnt from."""
    staleness: int = Field(0, ge=0)
    """Steps by which sampling runs ahead of learning; older rollouts are dropped and counted."""
    temperature: float = Field(1.0, gt=0.0)
    """Sampling temperature; log-probabilities are taken at the same one."""
    max_tokens: int = Field(72, ge=1)
    """Longest completion, in tokens."""
    engine: EngineConfig = TorchEngine()
    """What samples: `torch`, or `vllm` where it is installed; a mapping also holds its settings."""
    optimizer: Literal["adamw", "muon"] = "muon"
    """`muon` orthogonalises the updates of the layers' matrices and leaves the rest to AdamW."""
    learning_rate: float = Field(1e-3, gt=0.0)
    """Peak learning rate, on AdamW's scale for both optimisers."""
    optimisation: OptimisationConfig = OptimisationConfig()
    """How the rollouts of a step become optimiser updates."""
    reference: ReferenceConfig = ReferenceConfig()
    """What becomes of the reference policy."""
    critic: ValueModelConfig = ValueModelConfig()
    """The value model, where the algorithm asks for one."""
    learner: LearnerConfig = LearnerConfig()
    """Precision, adapters, activation checkpointing, and averaging of what is saved."""
    max_logprob_gap: float = Field(0.05, gt=0.0)
    """Largest mean gap, in nats, between the sampler's log-probabilities and the trainer's."""
    stop: StopConfig | None = None
    """A rule for stopping before the last step; none trains all of them."""
    checkpoint_every: int = Field(10, ge=0)
    """Optimiser updates between resumable checkpoints; 0 writes none."""

    @property
    def updates_per_step(self) -> int:
        """Optimiser updates that a step with enough groups makes."""
        return self.optimisation.epochs * self.optimisation.minibatches

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        self._check_algorithm()
        if self.optimisation.minibatches > self.problems_per_step:
            raise ValueError(
                f"optimisation.minibatches {self.optimisation.minibatches} exceeds"
                f" problems_per_step {self.problems_per_step}, and a group is never split;"
                " lower minibatches"
            )
        if self.reference.kind != "frozen" and self.algorithm.kl is None:
            raise ValueError(
                f"reference.kind is {self.reference.kind}, but the algorithm has no kl, so no"
                " reference is asked; add algorithm.kl, or leave reference out"
            )
        if self.critic != ValueModelConfig() and self.algorithm.critic is None:
            raise ValueError(
                "critic is set, but the algorithm has none; set algorithm to ppo, or leave it out"
            )
        self._check_stop_metric()
        if self.stop is not None and self.stop.keep == "best" and self.staleness:
            raise ValueError(
                f"stop.keep best keeps the policy that a step's rollouts are of, but staleness"
                f" {self.staleness} makes that an older one; set staleness to 0, or keep to last"
            )
        self._check_learner()
        if self.staleness >= self.steps:
            raise ValueError(
                f"staleness {self.staleness} is not below steps {self.steps}, so all rollouts would"
                " come from the first policy; lower staleness"
            )
        return self

    def _check_algorithm(self) -> None:
        """Refuse an algorithm that this stage cannot carry out."""
        try:
            check(
                self.algorithm,
                where="algorithm",
                group_size=self.group_size,
                max_tokens=self.max_tokens,
            )
            check_on_policy(
                self.algorithm,
                where="algorithm",
                updates_per_step=self.updates_per_step,
                staleness=self.staleness,
            )
        except UserError as error:
            # Only a ValueError gets the name of the stage put before it.
            raise ValueError(str(error)) from None
        advantage = self.algorithm.advantage
        if isinstance(advantage, GroupAdvantage) and advantage.turns is not None:
            raise ValueError(
                "algorithm.advantage.turns gives credit by turns, but a rollout of this stage has"
                " one; leave turns out"
            )

    def _check_stop_metric(self) -> None:
        """Refuse a metric that the chosen problem sampler does not measure."""
        if self.stop is None or not self.stop.metric.startswith(CURRICULUM):
            return
        known = [CURRICULUM + name for name in self.draw.sampler.METRICS]
        if self.stop.metric not in known:
            raise ValueError(
                f"stop.metric is {self.stop.metric}, which the sampler {self.draw.sampler.kind}"
                f" does not measure{nearest(self.stop.metric, known) or '; name another metric'}"
            )

    def _check_learner(self) -> None:
        """Refuse what other learners do and this one does not."""
        learner, lora = self.learner, self.learner.lora
        if learner.packing or learner.early_stop is not None:
            name = "packing" if learner.packing else "early_stop"
            remedy = "lower optimisation.micro_batch_tokens" if learner.packing else "set stop"
            raise ValueError(f"learner.{name} is for training on rows; leave it out and {remedy}")
        if lora is not None and lora.save == "adapter":
            raise ValueError(
                "learner.lora.save adapter is not for a policy that others go on from;"
                " set it to merged"
            )
        if lora is not None and lora.dropout > 0:
            raise ValueError(
                "learner.lora.dropout would make the log-probabilities differ from the sampler's;"
                " set it to 0"
            )
        if lora is not None and self.reference.kind != "frozen":
            raise ValueError(
                f"reference.kind {self.reference.kind} follows whole weights, but learner.lora"
                " trains adapters; set kind to frozen, or leave lora out"
            )
