"""Parameters of a probe."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from posttrain.learning.episodes.guidance.base import Guidance
from posttrain.learning.episodes.guidance.registry import GUIDANCE
from posttrain.learning.episodes.sampling import EpisodeSamplingConfig
from posttrain.learning.rollouts.searches.base import Search
from posttrain.learning.rollouts.searches.registry import SEARCHES
from posttrain.stage.slots import InSlot


class ProbeConfig(EpisodeSamplingConfig):
    """Which problems are attempted, how often and how; take RL's temperature, to meet its rates."""

    num_problems: int | None = Field(None, ge=1)
    """Problems to attempt, an even share of every source and difficulty; all of them, if null."""
    most_cut: float = Field(0.5, ge=0.0, le=1.0)
    """Largest share of a source's answers, as the policy was taught them, that `max_tokens` may cut
    off; beyond it the stage refuses."""
    guidance: tuple[Annotated[Guidance, InSlot(GUIDANCE)], ...] = ()
    """What is told before a second try at each attempt that failed: `[plan, feedback]`. The second
    tries stand among the samples, of the plain problem; no solve rate counts them."""
    search: Annotated[Search, InSlot(SEARCHES)] | None = None
    """How attempts look at those before them, such as a `tree`: how many there are of a problem is
    the search's to say. Null for `num_samples` that know nothing of each other."""

    @model_validator(mode="after")
    def _searches_answers(self) -> Self:
        if self.search is not None and (self.guidance or self.environment.authors()):
            raise ValueError(
                "a search looks for one answer, and no second try or turn follows it; leave"
                " guidance and environment out, or search"
            )
        return self
