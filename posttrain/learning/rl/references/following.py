"""References that stay, or follow the policy by the number of its updates."""

from typing import ClassVar, Literal

from pydantic import Field

from posttrain.learning.rl.references.base import ReferencePart


class Frozen(ReferencePart):
    """It stays what it was.

    Source: InstructGPT, arXiv 2203.02155, equation 2: the policy that RL began with.
    """

    MOVES: ClassVar[bool] = False

    kind: Literal["frozen"] = "frozen"

    def step_toward_policy(self, num_updates: int) -> float:  # noqa: ARG002
        """Stay."""
        return 0.0


class AveragedReference(ReferencePart):
    """It follows as a moving average of the policy's weights.

    `θ_ref <- decay θ_ref + (1 - decay) θ`, per optimizer update.
    """

    SOURCE = "WARP, arXiv 2406.16768: a moving average of the policy anchors the divergence"

    kind: Literal["ema"] = "ema"
    decay: float = Field(gt=0.0, lt=1.0)
    """Weight of its own past in the moving average, per optimizer update."""

    def step_toward_policy(self, num_updates: int) -> float:  # noqa: ARG002
        """Go the same part of the way in every update."""
        return 1.0 - self.decay


class Periodic(ReferencePart):
    """It is made the policy now and then.

    `θ_ref <- θ` after every `every` optimizer updates.
    """

    SOURCE = "the reference that GRPO renews in every iteration, arXiv 2402.03300, algorithm 1"

    kind: Literal["periodic"] = "periodic"
    every: int = Field(ge=1)
    """Optimizer updates between two periodic refreshes."""

    def step_toward_policy(self, num_updates: int) -> float:
        """Become the policy after every `every` updates."""
        return float(num_updates % self.every == 0)
