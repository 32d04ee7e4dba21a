"""Parameters of a series."""

from pydantic import Field

from posttrain.learning.rl.config import RlConfig
from posttrain.stage.config import StageConfig


class SeriesConfig(StageConfig):
    """Which run, and how often and by how many answers it is looked at."""

    run: RlConfig
    """The section of the run, but for its engine and its inputs."""
    points: int = Field(default=5, ge=2)
    """Points behind the start, evenly spread; the last one is the policy that the run handed on."""
    num_samples: int = Field(default=4, ge=1)
    """Answers to each held-out problem at each point."""

    def metrics(self) -> dict[str, str]:
        """Describe what a point measures."""
        return {
            "rl/reward/proxy": "mean score of the reward model on held-out answers",
            "rl/reward/gold": "share of held-out answers that the verifier accepts",
            "rl/kl": "KL(policy || reference) in nats per drawn token",
            "rl/length": "drawn tokens of a held-out answer",
        }
