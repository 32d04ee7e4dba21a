"""The slot of the references: what a part of it implements."""

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import model_validator

from posttrain.stage.slots import Part


class ReferenceRule:
    """Says after each step whether everything begins anew; `state_dict` holds what it remembers."""

    def observe(self, metrics: Mapping[str, float], *, step: int) -> bool:  # noqa: ARG002
        """Take note of a step.

        Args:
            metrics: Of the step, by full name.
            step: 0-based step that is over.

        Returns:
            True where the reference becomes the policy now, and the optimizer forgets.

        """
        return False

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes, as plain values."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""


class ReferencePart(Part):
    """How the policy that a divergence is measured from follows the one that learns."""

    MOVES: ClassVar[bool] = True
    """False where it stays what it was at the start."""
    METRICS: ClassVar[Mapping[str, str]] = {}
    """What is measured of it, with a description; in the curve as ``rl/<name>``."""

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, values: Any) -> Any:
        # Recorded parameters of older versions name every field of every kind.
        if not isinstance(values, Mapping):
            return values
        return {n: v for n, v in values.items() if v is not None or n in cls.model_fields}

    @property
    def follows(self) -> str | None:
        """Name of the metric that its rule goes by; None for none."""
        return None

    def step_toward_policy(self, num_updates: int) -> float:  # noqa: ARG002
        """Say which part of the way to the policy the reference goes now.

        Args:
            num_updates: Optimizer updates so far, this one included.

        Returns:
            0 where it stays, 1 where it becomes the policy.

        """
        return 0.0

    def start(self) -> ReferenceRule:
        """Begin a run."""
        return ReferenceRule()
