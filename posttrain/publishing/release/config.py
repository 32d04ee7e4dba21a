"""The recipe's `release` section: what is released, its gates, and the licences of its inputs."""

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from posttrain.stage.config import StageConfig

Test = Literal["paired_bootstrap", "sign"]


class Gate(StageConfig):
    """What all gates have: a name, by which a refusal and the signed result call it."""

    name: str = Field(min_length=1)


class MetricGate(Gate):
    """A gate on a metric of the evaluation, from its per-problem results."""

    metric: str = Field("pass_at_1", pattern=r"pass_at_[1-9]\d*")
    """pass_at_K: the chance that one of K samples is right, estimated per problem."""
    seeds: int = Field(1, ge=1)
    """Evaluations of exactly this policy, each with another run.seed, that must be there."""
    confidence: float = Field(0.95, gt=0.5, lt=1.0)
    """Of the two-sided interval that decides."""


class ThresholdGate(MetricGate):
    """The metric lies above a value: the lower end of its interval does."""

    kind: Literal["threshold"]
    at_least: float


class ComparisonGate(MetricGate):
    """A gate on the difference to another policy on the same problems."""

    against: str = "parent"
    """"parent": the release before this one. Otherwise a policy of the same evaluation."""
    without_parent: str | None = None
    """Policy of the evaluation that stands in while there is no release yet."""


class ImprovementGate(ComparisonGate):
    """The policy is better by more than a margin, and that is not noise."""

    kind: Literal["improvement"]
    seeds: int = Field(3, ge=2)
    """A single seed cannot show an improvement, so 1 is refused."""
    margin: float = Field(0.0, ge=0.0)
    """Difference that must be exceeded."""
    test: Test = "paired_bootstrap"
    """paired_bootstrap resamples problems; sign is exact, over problems won and lost."""


class NoRegressionGate(ComparisonGate):
    """The policy is not worse by more than a tolerance: the interval's lower end says so."""

    kind: Literal["no_regression"]
    seeds: int = Field(1, ge=1)
    tolerance: float = Field(0.02, ge=0.0)
    """Loss that would be accepted."""


class LimitGate(Gate):
    """A figure that a stage recorded lies within limits. It has no interval: a sanity check."""

    kind: Literal["limit"]
    metric: str
    """As the stage reports it, for example rl/truncation_rate."""
    at_least: float | None = None
    at_most: float | None = None

    @model_validator(mode="after")
    def _has_a_limit(self) -> Self:
        if self.at_least is None and self.at_most is None:
            raise ValueError("give at_least, at_most or both")
        return self


class ContaminationGate(Gate):
    """No training table shares a problem with the evaluation, checked anew on the bytes."""

    kind: Literal["contamination"]
    ngram: int | None = Field(13, ge=2)
    """A run of as many words in common counts as the same problem; null: equal prompts only."""
    boilerplate: int = Field(20, ge=1)
    """Runs that stand in more problems than this are a template and do not count."""
    allowed: int = Field(0, ge=0)
    """Training rows that may be contaminated."""


class SchemaGate(Gate):
    """Every table and report in the policy's ancestry has its bytes, its type and no gaps."""

    kind: Literal["schema"]


class LicenceGate(Gate):
    """Every input from outside has a known licence."""

    kind: Literal["licence"]
    allow_unknown: bool = False
    allowed: tuple[str, ...] = ()
    """SPDX identifiers that are accepted; any known one where this is empty."""


class RecallGate(Gate):
    """Neither the release nor anything that it was made from was recalled."""

    kind: Literal["recall"]


class ReproducibilityGate(Gate):
    """The recipe declares at least this level, and the ledger does not contradict it."""

    kind: Literal["reproducibility"]
    level: Literal["L0", "L1", "L2", "L3"] = "L0"
    executions: int = Field(1, ge=1)
    """Times that every stage must have been executed under its key, always with equal outputs."""


AnyGate = Annotated[
    ThresholdGate
    | ImprovementGate
    | NoRegressionGate
    | LimitGate
    | ContaminationGate
    | SchemaGate
    | LicenceGate
    | RecallGate
    | ReproducibilityGate,
    Field(discriminator="kind"),
]

# What no release goes without, unless the recipe sets a gate of the same kind itself.
ALWAYS: tuple[AnyGate, ...] = (
    ContaminationGate.model_validate({"name": "contamination", "kind": "contamination"}),
    SchemaGate(name="schema", kind="schema"),
    LicenceGate(name="licence", kind="licence"),
    RecallGate(name="recall", kind="recall"),
    ReproducibilityGate.model_validate(
        {"name": "reproducibility", "kind": "reproducibility", "level": "L3"}
    ),
)


class ReleaseConfig(StageConfig):
    """What `posttrain release create` releases and asks for."""

    policy: str = Field("rl.policy", pattern=r"[\w-]+\.[\w-]+")
    """The artifact that is released, as stage.output."""
    evaluation: str = "evaluate"
    """The stage whose report and completions judge it."""
    gates: tuple[AnyGate, ...] = ()
    """All of them must pass; contamination, schema, licence, recall and reproducibility always."""
    licences: Mapping[str, str] = Field(default_factory=dict)
    """SPDX identifier of each input from outside, by its name; `*` stands for all others."""
    licence: str | None = None
    """SPDX identifier under which the release itself is published."""
    promote: Literal["staging", "prod"] | None = None
    """Environment to which a scheduled run promotes its release; null: people promote."""

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        names = [gate.name for gate in self.gates]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"two gates are called '{twice}'; give each a name of its own")
        return self

    def every_gate(self) -> tuple[AnyGate, ...]:
        """The recipe's gates, and those that always hold."""
        kinds = {gate.kind for gate in self.gates}
        return (*self.gates, *(gate for gate in ALWAYS if gate.kind not in kinds))
