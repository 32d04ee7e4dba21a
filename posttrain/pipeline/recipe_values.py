"""What a recipe states: how its stages are run, and a section of parameters for each."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from posttrain.pipeline.cost_settings import CostSettings
from posttrain.pipeline.profile import Profile
from posttrain.pipeline.recipe_formats import FORMAT
from posttrain.pipeline.systems import cores
from posttrain.provenance.key import flattened
from posttrain.provenance.ledger.location import STATE_DIR
from posttrain.stage.config import UNKEYED, StageConfig
from posttrain.stage.declared import Declared
from posttrain.stage.kernels import Kernels
from posttrain.stage.resources import Resources

CLAIMS_FOLDER = (STATE_DIR, "claims")
"""Of a project: where each claim that is run has a folder with its recipe."""


class RunSettings(StageConfig):
    """How the stages of a recipe are run, as opposed to what they compute."""

    seed: int = Field(default=0, ge=0)
    """Every random choice of every stage derives from it."""
    threads: int = Field(default=2, ge=1, le=4096)
    """Threads of one stage; results are bitwise equal only for an equal thread count."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Class of device that the stages compute on."""
    kernels: Kernels = "portable"
    """Kernels of the processor: `portable` are those of AVX2, which come to the same bytes on every
    x86 processor that has it; `fast` are the fastest that this one has."""
    level: Annotated[Literal["L0", "L1", "L2", "L3"], UNKEYED] = "L0"
    """Reproducibility that the recipe promises: L0 is bitwise on one machine's CPU."""
    retries: Annotated[int, UNKEYED] = Field(default=1, ge=0)
    """Times that a crashed stage is started again; it goes on from its last checkpoint."""
    timeout_minutes: Annotated[float, UNKEYED] = Field(default=60.0, gt=0)
    """A stage that runs longer is stopped."""
    stall_minutes: Annotated[float, UNKEYED] = Field(default=10.0, gt=0)
    """A stage that shows no sign of progress for this long is stopped."""
    grace_seconds: Annotated[float, UNKEYED] = Field(default=1.5, ge=0)
    """What a stage has from SIGTERM to its end, for a last checkpoint; schedulers of clusters, and
    clouds that take a machine away, tell how long they wait."""
    resources: Annotated[Resources, UNKEYED] = Resources()
    """What every stage that can make use of it is given, unless its own section says otherwise."""

    def lanes(self) -> int:
        """Stages that fit on this machine's cores at once."""
        return max(1, cores() // self.threads)

    def keyed(self) -> dict[str, str]:
        """The settings that can change a stage's bytes, and so belong into its key.

        Resources are in it as far as each stage makes use of them.
        """
        return {name: str(value) for name, value in super().keyed().items()}


@dataclass(frozen=True)
class RecipeValues:
    """A recipe file with its overrides applied; nothing is validated against the flow yet."""

    path: Path
    flow: str
    run: RunSettings
    sections: Mapping[str, Mapping[str, Any]]
    overrides: Mapping[str, Any] = field(default_factory=dict)
    release: Mapping[str, Any] = field(default_factory=dict)
    """What a release must show; no part of any stage, and so of no key and no generated file."""
    cost: Mapping[str, Any] = field(default_factory=dict)
    """What things cost, and how much of them a run may take; no part of any stage either."""
    notify: Mapping[str, Any] = field(default_factory=dict)
    """Who is told of a run's end, and how."""
    plugins: tuple[str, ...] = ()
    """Modules whose parts the recipe's sections may name; `posttrain.stage.slots` says how."""
    format: int = FORMAT
    """What the sections are spelled in; the task of each says what is old in it."""
    respelled: tuple[str, ...] = ()
    """What was spelled as of old in `release`."""
    declared: Declared = Declared()
    """What every stage may read beside its inputs."""
    rounds: int | None = None
    """Rounds of a flow that has some, in place of its own number."""
    method: str = ""
    """The method whose settings lie under the sections; none where the recipe names none."""
    of_method: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What the method sets, in today's spelling whatever the recipe's format is."""
    profile: Profile = Profile()
    """Which defaults lie below both."""

    @property
    def directory(self) -> Path:
        """Where the recipe's dvc.yaml, params.yaml and data/ live."""
        return self.path.parent

    def cost_settings(self) -> CostSettings:
        """What the section `cost` says; a `UserError` for what it may not."""
        return CostSettings.parse(self.cost, where="cost")

    def stated(self) -> dict[str, str]:
        """What the file and its overrides state, by dotted name, as JSON."""
        run = self.run.model_dump(mode="json", exclude_unset=True)
        method = {"method": self.method} if self.method else {}
        return flattened({**method, **({"run": run} if run else {}), **self.sections})

    def names(self) -> list[str]:
        """Name every section that the method sets or the recipe has."""
        return list(dict.fromkeys((*self.of_method, *self.sections)))

    @property
    def name(self) -> str:
        """The recipe's folder under recipes/ or of its claim, or the flow's name for the one at the
        root.
        """
        is_named = self.directory.parent.name == "recipes" or self.is_of_claim
        return self.directory.name if is_named else self.flow.rpartition(".")[2]

    @property
    def is_of_claim(self) -> bool:
        """True where it is a claim of a method, written by `posttrain method run`."""
        return self.directory.parent.parts[-2:] == CLAIMS_FOLDER
