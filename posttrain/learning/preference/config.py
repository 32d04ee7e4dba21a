"""Parameters of preference optimization."""

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from posttrain.data.contexts import LearnedTurns
from posttrain.data.pair_builders.base import PairBuilder
from posttrain.data.pair_builders.registry import PAIR_BUILDERS
from posttrain.data.pair_builders.verifier import VerifierPairs
from posttrain.learning.algorithms.preference import PreferenceAlgorithm
from posttrain.learning.algorithms.presets import PreferenceAlgorithmConfig
from posttrain.learning.models.optimization import OptimizationConfig
from posttrain.learning.rewards.components.oracles.registry import PAIR_ORACLES, PairOracle
from posttrain.learning.rollouts.sampling import SamplingConfig
from posttrain.learning.training.config import TrainingConfig
from posttrain.learning.training.lengths import MaxLength
from posttrain.learning.training.metrics import PAIR_METRICS
from posttrain.stage.config import StageConfig
from posttrain.stage.slots import InSlot

if TYPE_CHECKING:
    import polars as pl


class PairsConfig(StageConfig):
    """How pairs are built from judged samples."""

    builder: Annotated[PairBuilder, InSlot(PAIR_BUILDERS)] = VerifierPairs()
    """What stands against what."""
    per_problem: int = Field(default=2, ge=1)
    """Most pairs that one problem gives."""
    limit: int | None = Field(default=None, ge=2)
    """Most pairs in all; every problem gives one before any gives two."""
    heldout_fraction: float = Field(default=0.2, gt=0.0, lt=1.0)
    """Share of the problems whose pairs are kept for the report."""

    def build(
        self, samples: "pl.DataFrame", *, seed: int, beside: "pl.DataFrame | None" = None
    ) -> "pl.DataFrame":
        """Build PAIRS from scored COMPLETIONS, with another's beside them; see `build_pairs`."""
        from posttrain.data.pairs import build_pairs

        return build_pairs(
            samples,
            pairs_per_problem=self.per_problem,
            heldout_fraction=self.heldout_fraction,
            seed=seed,
            max_pairs=self.limit,
            builder=self.builder,
            reference_samples=beside,
        )


class RoundSamplingConfig(SamplingConfig):
    """How the policy is sampled, in rounds and for the divergence of the report."""

    problems: int = Field(default=64, ge=2)
    """Problems that a round attempts."""
    num_samples: int = Field(default=8, ge=2)
    """Samples per problem."""


class PreferenceOptimization(OptimizationConfig):
    """Optimizer and learning rate of learning from pairs."""

    learning_rate: float = Field(default=1e-4, gt=0.0)
    """Peak learning rate, on AdamW's scale for both optimizers."""
    warmup_steps: int = Field(default=5, ge=0)
    """Optimizer steps over which the learning rate rises to its peak."""


class ReferenceMixture(StageConfig):
    """A reference between two: p of the one to the power of its share, times that of the other."""

    initial: float = Field(gt=0.0, lt=1.0)
    """Share of the policy before the first round; the rest is that at the start of the round."""


class PreferenceConfig(TrainingConfig):
    """The algorithm, its pairs, and the optimization (of each round, where there are rounds)."""

    STAGE: ClassVar[str] = "preference"
    algorithm: PreferenceAlgorithmConfig = PreferenceAlgorithm()
    """A method's name (dpo, ipo, kto, simpo, ...; `posttrain method list --family pref`), or
    switches that change `dpo` or the `preset` beside them."""
    pairs: PairsConfig = PairsConfig()
    """How pairs are built."""
    turns: LearnedTurns = "last"
    """What of an episode is compared: its `last` answer, or all that the `assistant` said in it."""
    rounds: int = Field(0, ge=0)
    """On-policy rounds of sampling, judging and training; 0 trains once on the pairs given."""
    opponent: Literal["policy", "reference", "mixture", "teacher"] = "policy"
    """Whose samples stand against the policy's in a round: its own, as `pairs.builder` has it, or
    the reference's, one against one, of which the better scored one is chosen. With `mixture` the
    policy's own are compared by what each wins against samples of the `reference` that is a
    geometric mixture. With `teacher` the answers at the port `reference_samples` join its own, in
    one pool of which `pairs.builder` builds."""
    accumulate: bool = False
    """Train each round on the pairs of all rounds so far, and not on its own alone."""
    reference: Literal["initial", "round"] | ReferenceMixture = "initial"
    """The policy that log-ratios compare with: the first one, or that at the start of a round; with
    `{initial: 0.3}` a geometric mixture of both."""
    oracle: Annotated[PairOracle, InSlot(PAIR_ORACLES)] | None = None
    """Who compares the samples of a round, each with the next one or with the opponent's; null
    where scores do. Beside another `pairs.builder` than verifier it gives the scores that this one
    builds by: how often a sample is preferred to those of its problem."""
    sampling: RoundSamplingConfig = RoundSamplingConfig()
    """How the policy is sampled."""
    max_length: MaxLength = "auto"  # type: ignore[assignment]
    """Longest prompt and completion in tokens; longer pairs are left out and counted. `auto` goes
    by them: a quarter more than 99% have, from 512 to 4096 tokens and no more than the model's
    context."""
    optimization: PreferenceOptimization = PreferenceOptimization()
    """Optimizer, learning rate and its schedule."""

    def metrics(self) -> dict[str, str]:
        """Describe what the steps measure; see `TrainingConfig.metrics`."""
        return {**super().metrics(), **PAIR_METRICS, **self.algorithm.metrics}

    @model_validator(mode="after")
    def _rounds_are_there(self) -> Self:
        against_reference = self.opponent == "reference"
        if self.opponent == "mixture" and (
            self.oracle is None
            or self.oracle.label != "win_rates"
            or not isinstance(self.reference, ReferenceMixture)
        ):
            raise ValueError(
                "opponent mixture asks what samples win against a geometric mixture; set reference"
                " to {initial: SHARE}, and oracle to one with label: win_rates"
            )
        if self.algorithm.optimism_coefficient and not (self.rounds and against_reference):
            raise ValueError(
                "optimism_coefficient needs pairs of which one side is the reference's, which only"
                " rounds draw; set rounds to 1 or more and opponent to reference"
            )
        if against_reference and self.reference != "initial":
            raise ValueError(
                "opponent reference with another reference than 'initial' would set the policy"
                " against itself; set reference to initial, or opponent to policy"
            )
        if self.turns != "last" and (self.rounds or self.algorithm.needs_mismatched):
            raise ValueError(
                f"turns {self.turns} compares two episodes of one problem, but rounds draw answers"
                " of one turn, and kto compares with answers to other problems; set rounds to 0 and"
                " take another loss, or leave turns out"
            )
        if self.algorithm.draws_own and (self.reference != "initial" or self.learner.packing):
            raise ValueError(
                "a term of the algorithm asks for own samples at every step, each a row by itself,"
                " and for a reference that stays; set reference to initial, and leave"
                " learner.packing out"
            )
        if self.rounds and self.pairs.builder.OF_STEPS:
            raise ValueError(
                f"pairs.builder {self.pairs.builder.kind} compares beginnings of samples, and a"
                " round compares answers as they were drawn; set rounds to 0, or take another"
                " builder"
            )
        for name in ("accumulate", "opponent", "oracle"):
            if getattr(self, name) != type(self).model_fields[name].default and not self.rounds:
                raise ValueError(f"{name} says what rounds do; set rounds, or leave {name} out")
        if against_reference and self.pairs.builder != VerifierPairs():
            raise ValueError(
                "opponent reference pairs one sample with one of the reference, so pairs.builder"
                " builds nothing; leave one of them out"
            )
        if self.reference != "initial" and not self.rounds:
            raise ValueError("reference 'round' needs rounds; set rounds, or take 'initial'")
        self._oracle_is_asked()
        return self

    def beyond_processes(self, processes: int) -> str | None:
        """Say what is sampled while it trains; see `StageConfig.beyond_processes`."""
        if processes == 1:
            return None
        if self.rounds:
            return "rounds sample in one process; set rounds to 0, or leave resources.processes out"
        if self.algorithm.draws_own:
            return (
                "own samples are drawn in one process; leave resources.processes out, or the term"
                " that asks for them"
            )
        return super().beyond_processes(processes)

    @property
    def compares_neighbors(self) -> bool:
        """True where an oracle labels each sample of a round and the next one, and none builds."""
        return self.oracle is not None and self.pairs.builder == VerifierPairs()

    def _oracle_is_asked(self) -> None:
        """Refuse an oracle beside what nobody would read then."""
        if self.oracle is None:
            return
        if not self.compares_neighbors:
            if self.opponent == "mixture":
                raise ValueError(
                    "opponent mixture compares samples as they are drawn, so pairs.builder builds"
                    " nothing; leave one of them out"
                )
            if self.oracle.label != type(self.oracle).model_fields["label"].default:
                raise ValueError(
                    f"pairs.builder {self.pairs.builder.kind} goes by what samples win on average,"
                    " and such pairs are sure; leave oracle.label out"
                )
            return
        if self.opponent == "teacher":
            raise ValueError(
                "opponent teacher with an oracle ranks its answers among the policy's, and pairs"
                " are built by the ranks; set pairs.builder to margin or best_worst"
            )
        if self.oracle.label != "majority" and not self.algorithm.takes_label_probs:
            raise ValueError(
                f"the oracle gives probabilities, but the loss {self.algorithm.loss_name} has one"
                " side alone; take sigmoid, robust or ipo without sft_coefficient, or label:"
                " majority"
            )
