"""Parameters of a probe."""

from pydantic import Field

from posttrain.learning.episodes.sampling import EpisodeSamplingConfig


class ProbeConfig(EpisodeSamplingConfig):
    """Which problems are attempted, how often and how; take RL's temperature, to meet its rates."""

    num_problems: int | None = Field(None, ge=1)
    """Problems to attempt, an even share of every source and difficulty; all of them, if null."""
    most_cut: float = Field(0.5, ge=0.0, le=1.0)
    """Largest share of a source's answers, as the policy was taught them, that `max_tokens` may cut
    off; beyond it the stage refuses."""
