"""Parameters of problem synthesis: sources of problems, and how well the teacher solves them."""

from typing import Annotated

from pydantic import Field

# Sources name their verifiers by the slot, which is there once its registry is imported.
import posttrain.learning.rewards.verifiers.registry  # noqa: F401
from posttrain.data.sources.base import Source
from posttrain.data.sources.config import SourcesConfig
from posttrain.data.sources.reasoning_gym import ReasoningGymSource
from posttrain.data.sources.registry import SOURCES
from posttrain.data.teachers.base import Teacher
from posttrain.data.teachers.programs import ProgramTeacher
from posttrain.data.teachers.registry import TEACHERS
from posttrain.stage.slots import InSlot

DEFAULT_SOURCES: tuple[Source, ...] = (
    ReasoningGymSource(
        name="chain_sum",
        levels=(2, 3, 4, 5, 6),
        graded=("min_terms", "max_terms"),
        options={"min_digits": 1, "max_digits": 1},
    ),
    ReasoningGymSource(
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
    ReasoningGymSource(
        name="leg_counting",
        levels=(1, 2, 3, 4),
        graded=("min_animals", "max_animals"),
        options={"min_instances": 1, "max_instances": 3},
    ),
    ReasoningGymSource(
        name="number_sorting",
        levels=(3, 4, 5, 6),
        graded=("min_numbers", "max_numbers"),
        options={"min_value": 0, "max_value": 9, "min_decimals": 0, "max_decimals": 0},
    ),
)


class SynthesizeConfig(SourcesConfig):
    """Sources of problems, how many of each, and the teacher that solves them."""

    sources: tuple[Annotated[Source, InSlot(SOURCES)], ...] = Field(
        default=DEFAULT_SOURCES, min_length=1
    )
    """Where problems come from."""
    num_problems: int = Field(default=6000, ge=1)
    """Training problems of each generator, spread evenly over its levels."""
    num_heldout: int = Field(default=128, ge=1)
    """Held-out problems of each generator, likewise."""
    heldout_fraction: float = Field(default=0.1, gt=0.0, lt=1.0)
    """Share of a parted file's problems that is held out, chosen by content."""
    solutions_per_problem: int = Field(default=3, ge=1)
    """Attempts of the teacher at every problem that comes without a solution."""
    teacher: Annotated[Teacher, InSlot(TEACHERS)] = ProgramTeacher()
    """What writes the solutions: programs, which solve generated problems, or a served model."""

    def remarks(self) -> tuple[str, ...]:
        """Say which sources get no solutions; see `StageConfig.remarks`."""
        return tuple(filter(None, (source.remark(self.teacher) for source in self.sources)))
