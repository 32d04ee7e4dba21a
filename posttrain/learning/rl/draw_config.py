"""Which problems are practiced on, and which of their groups are learned from."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from posttrain.learning.curriculum.base import ProblemSampler
from posttrain.learning.curriculum.registry import PROBLEM_SAMPLERS
from posttrain.learning.curriculum.uniform import Uniform
from posttrain.learning.rl.action_masks.registry import ActionMaskConfig
from posttrain.learning.rl.additions.registry import AdditionConfig
from posttrain.learning.rl.instructors.base import Instructor
from posttrain.learning.rl.instructors.registry import INSTRUCTORS
from posttrain.learning.rl.producers.base import Producer
from posttrain.learning.rl.producers.plain import Plain
from posttrain.learning.rl.producers.registry import PRODUCERS
from posttrain.learning.rl.selections.base import Selection
from posttrain.learning.rl.selections.every import Every
from posttrain.learning.rl.selections.registry import SELECTIONS
from posttrain.stage.config import StageConfig
from posttrain.stage.slots import InSlot

ProducerConfig = Annotated[Producer, InSlot(PRODUCERS)]
"""The type of a field that holds a producer."""
PLAIN = Plain()


class DrawConfig(StageConfig):
    """Which problems are practiced on, and which of their groups are learned from."""

    # 1: sampler solve_rate, train_on signal.
    DEFAULTS_VERSION: ClassVar[int] = 2

    sampler: Annotated[ProblemSampler, InSlot(PROBLEM_SAMPLERS)] = Uniform()
    """Chooses the problems: `uniform`, `solve_rate`, or a mapping with a kind and its settings."""
    sources: dict[str, float] = Field(default_factory=dict)
    """Share of the problems that each source gives; empty leaves it to the sampler."""
    most_of_one_answer: float = Field(default=1.0, gt=0.0, le=1.0)
    """Share of a step's problems of a source that may have one answer, as long as it has others;
    below 1, a policy that says the commonest one does not earn most."""
    instructions: Annotated[Instructor, InSlot(INSTRUCTORS)] | None = None
    """Which instruction stands before a problem, as its system prompt; none leaves it as it is."""
    max_rounds: int = Field(default=1, ge=1)
    """Rounds of sampling per step; above 1, groups without signal are made up for."""
    train_on: Literal["signal", "all"] = "all"
    """Every group, as most papers have it, or those whose answers the solver tells apart. What is
    left out bears no divergence, counts in no statistic of the batch and in no denominator."""
    select: Annotated[Selection, InSlot(SELECTIONS)] = Every()
    """Which rollouts of such a group are learned from: `every`, or a mapping with a kind. The
    others are stored too, and statistics of the group are without them."""

    additions: AdditionConfig | None = None
    """What joins a group that is learned from, such as `traces` of others; none for nothing."""
    # Left out of what is keyed while there is none, so that runs from before it stay what they are.
    mask: ActionMaskConfig | None = Field(default=None, exclude_if=lambda mask: mask is None)
    """Which tokens may be drawn at all, such as `nucleus`; the policy is renormalized over them, as
    it draws and as it learns. None leaves it the whole vocabulary."""

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
