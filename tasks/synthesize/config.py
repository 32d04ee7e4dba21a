"""Parameters of problem synthesis: sources of problems, and how well the teacher solves them."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from posttrain.backends.endpoint.config import Endpoint
from posttrain.learning.rewards.verifiers.base import Verifier
from posttrain.learning.rewards.verifiers.numeric import NumericVerifier
from posttrain.learning.rewards.verifiers.registry import VERIFIERS
from posttrain.stage.config import StageConfig
from posttrain.stage.slots import InSlot


class GymSource(StageConfig):
    """One generator of the reasoning-gym library, at graded difficulty."""

    kind: Literal["reasoning_gym"] = "reasoning_gym"
    """Problems are generated, and scored by the library's own scorer."""
    name: str
    """Generator, for example chain_sum; the source of its problems is called the same."""
    levels: tuple[int, ...] = Field(min_length=1)
    """Values of the graded options, easy to hard; the first is difficulty 1."""
    graded: tuple[str, ...] = Field(min_length=1)
    """Options of the generator that take the level's value."""
    options: Mapping[str, Any] = Field(default_factory=dict)
    """Further options of the generator."""


class FileSource(StageConfig):
    """A table of problems that someone else made."""

    kind: Literal["jsonl", "parquet", "huggingface"]
    """How it is read."""
    name: str
    """Name of the source; for huggingface without a path, the data set's name on the hub."""
    path: str | None = None
    """Local file, or local folder of a data set, relative to the recipe."""
    revision: str | None = None
    """Commit of a data set on the hub; required there, so that the same bytes come again."""
    split: str = "train"
    """Split of a huggingface data set."""
    subset: str | None = None
    """Which of a huggingface data set's configurations, where it has several."""
    hub: str | None = None
    """The data set's name on the hub, where the source is to be called otherwise."""
    use: Literal["parted", "train", "heldout"] = "parted"
    """`train` and `heldout` keep the file whole; `parted` holds out a share of its problems."""
    columns: Mapping[str, str] = Field(default_factory=dict)
    """Our name -> the file's: prompt and answer, optionally solution and difficulty."""
    verifier: Annotated[Verifier, InSlot(VERIFIERS)] = NumericVerifier()
    """What scores answers: a kind's name, or a mapping with the kind and its parameters."""

    @model_validator(mode="after")
    def _has_a_place(self) -> Self:
        if self.kind != "huggingface" and self.path is None:
            raise ValueError(f"a {self.kind} source needs a path to a local file")
        if self.kind == "huggingface" and self.path is None and self.revision is None:
            raise ValueError("pin the data set with revision: <commit>, or give a local path")
        if self.kind != "huggingface" and (self.subset or self.hub):
            raise ValueError(f"subset and hub are for kind huggingface, not {self.kind}")
        if self.path is not None and self.hub is not None:
            raise ValueError("give path (a local folder) or hub (a name there), not both")
        return self


Source = Annotated[GymSource | FileSource, Field(discriminator="kind")]

DEFAULT_SOURCES: tuple[GymSource, ...] = (
    GymSource(
        name="chain_sum",
        levels=(2, 3, 4, 5, 6),
        graded=("min_terms", "max_terms"),
        options={"min_digits": 1, "max_digits": 1},
    ),
    GymSource(
        name="basic_arithmetic",
        levels=(2, 3, 4, 5),
        graded=("min_terms", "max_terms"),
        options={
            "min_digits": 1,
            "max_digits": 1,
            "operators": ["+", "-"],
            "allow_parentheses": True,
            "allow_negation": False,
        },
    ),
    GymSource(
        name="leg_counting",
        levels=(1, 2, 3, 4),
        graded=("min_animals", "max_animals"),
        options={"min_instances": 1, "max_instances": 3},
    ),
    GymSource(
        name="number_sorting",
        levels=(3, 4, 5, 6),
        graded=("min_numbers", "max_numbers"),
        options={"min_value": 0, "max_value": 9, "min_decimals": 0, "max_decimals": 0},
    ),
)


class ServerTeacher(StageConfig):
    """A model that writes worked solutions, behind an OpenAI-compatible endpoint."""

    kind: Literal["server"] = "server"
    """Solutions are asked for; each is kept in the project's request cache."""
    endpoint: Endpoint
    """Where it answers."""
    template: str = (
        "{prompt}\n\nWork it out, one short line a step. End with a last line that is `#### ` and"
        " the answer, nothing else."
    )
    """What it is asked; {prompt} is the problem's."""
    system: str = ""
    """System message, if any."""
    temperature: float = Field(default=0.7, ge=0.0)
    """Its sampling temperature."""
    max_tokens: int = Field(default=512, ge=1)
    """Longest solution, in its tokens."""


class SynthesizeConfig(StageConfig):
    """Sources of problems, how many of each, and the teacher that solves them."""

    sources: tuple[Source, ...] = Field(default=DEFAULT_SOURCES, min_length=1)
    """Where problems come from."""
    num_problems: int = Field(default=6000, ge=1)
    """Training problems of each generator, spread evenly over its levels."""
    num_heldout: int = Field(default=128, ge=1)
    """Held-out problems of each generator, likewise."""
    heldout_fraction: float = Field(default=0.1, gt=0.0, lt=1.0)
    """Share of a parted file's problems that is held out, chosen by content."""
    solutions_per_problem: int = Field(default=3, ge=1)
    """Attempts of the teacher at every problem that comes without a solution."""
    teacher: ServerTeacher | None = None
    """A model that writes the solutions; null for programs, which solve generated problems."""
    error_rate: float = Field(default=0.2, ge=0.0, le=1.0)
    """Probability that a step of a program is wrong; the steps after it build on the error."""

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        names = [source.name for source in self.sources]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"two sources are called '{twice}'; give each a name of its own")
        return self

    def local_files(self) -> Mapping[str, str]:
        """Paths of the file sources, by source name."""
        files = (source for source in self.sources if isinstance(source, FileSource))
        return {source.name: source.path for source in files if source.path is not None}
