"""The recipe's `release` section: what is released, its gates, and the licenses of its inputs."""

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, TypeAdapter, model_validator

from posttrain.publishing.release.gates.inputs import ContaminationGate, LicenseGate
from posttrain.publishing.release.gates.integrity import (
    LimitGate,
    RecallGate,
    ReproducibilityGate,
    SchemaGate,
)
from posttrain.publishing.release.gates.metrics import (
    NO_SIGN_TEST,
    ImprovementGate,
    NoRegressionGate,
    ThresholdGate,
)
from posttrain.stage.config import StageConfig
from posttrain.stage.errors import UserError, nearest
from posttrain.stage.spec import Dag

AnyGate = Annotated[
    ThresholdGate
    | ImprovementGate
    | NoRegressionGate
    | LimitGate
    | ContaminationGate
    | SchemaGate
    | LicenseGate
    | RecallGate
    | ReproducibilityGate,
    Field(discriminator="kind"),
]

# What no release goes without, unless the recipe sets a gate of the same kind itself.
ALWAYS: tuple[AnyGate, ...] = TypeAdapter(tuple[AnyGate, ...]).validate_python(
    [
        {"name": "contamination", "kind": "contamination"},
        {"name": "schema", "kind": "schema"},
        {"name": "license", "kind": "license"},
        {"name": "recall", "kind": "recall"},
        {"name": "reproducibility", "kind": "reproducibility", "level": "L3"},
    ]
)


class BenchmarkConfig(StageConfig):
    """A benchmark of the Hugging Face hub that all held-out problems are from."""

    dataset: str = Field(pattern=r"[\w.-]+/[\w.-]+")
    """The data set's name on the hub, such as openai/gsm8k."""
    task: str = "default"
    """Which of its tasks, by the id in its eval.yaml."""


class ReleaseConfig(StageConfig):
    """What `posttrain release create` releases and asks for."""

    policy: str = Field("rl.policy", pattern=r"[\w-]+\.[\w-]+")
    """The artifact that is released, as stage.output."""
    evaluation: str = "evaluate"
    """The stage whose report and completions decide."""
    gates: tuple[AnyGate, ...] = ()
    """All of them must pass; contamination, schema, license, recall and reproducibility always."""
    licenses: Mapping[str, str] = Field(default_factory=dict)
    """SPDX identifier of each input from outside, by its name; `*` stands for all others."""
    license: str | None = None
    """SPDX identifier under which the release itself is published."""
    license_link: str | None = None
    """Address of the license's text, for one that the Hugging Face hub does not list."""
    language: tuple[Annotated[str, Field(pattern=r"[a-z]{2,3}|code|multilingual")], ...] = ()
    """What the model speaks, by ISO 639, such as en; stands on its card."""
    base_model: str | None = Field(None, pattern=r"[\w.-]+/[\w.-]+")
    """The base's name on the hub, where the recipe imports it from a folder."""
    benchmark: BenchmarkConfig | None = None
    """The benchmark whose leaderboard pass@1 goes to, where the held-out problems are its own."""
    promote: Literal["staging", "prod"] | None = None
    """Environment to which a scheduled run promotes its release; null: people promote."""

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        names = [gate.name for gate in self.gates]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"two gates are called '{twice}'; give each a name of its own")
        return self

    def refuse_outdated(self) -> None:
        """Refuse gates that old releases may have had and no new one passes.

        Raises:
            UserError: With what to write instead.

        """
        for gate in self.gates:
            if isinstance(gate, ImprovementGate) and gate.test == "sign":
                raise UserError(f"release: gate '{gate.name}': {NO_SIGN_TEST}")

    def refuse_unknown(self, dag: Dag) -> None:
        """Refuse what is released or decides, and no stage makes.

        Args:
            dag: The stages of the recipe.

        Raises:
            UserError: With the nearest name.

        """
        stage, _, output = self.policy.partition(".")
        made = {f"{each.name}.{port}" for each in dag.stages.values() for port in each.task.outputs}
        if f"{stage}.{output}" not in made:
            raise UserError(
                f"release.policy: no stage makes '{self.policy}'{nearest(self.policy, made)}"
            )
        if self.evaluation not in dag.stages:
            hint = nearest(self.evaluation, dag.stages)
            raise UserError(f"release.evaluation: there is no stage '{self.evaluation}'{hint}")

    def every_gate(self) -> tuple[AnyGate, ...]:
        """The recipe's gates, and those that always hold."""
        kinds = {type(gate) for gate in self.gates}
        return (*self.gates, *(gate for gate in ALWAYS if type(gate) not in kinds))
