"""When to stop before the planned end: a measured number has not improved for a while."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from posttrain.stage.config import StageConfig


class StoppingConfig(StageConfig):
    """What counts as no longer improving."""

    patience: int = Field(3, ge=1)
    """Measurements in a row that may be no better than the best before training stops."""
    min_improvement: float = Field(0.0, ge=0.0)
    """How much better than the best a measurement must be to count as better."""
    keep: Literal["last", "best"] = "last"
    """Which weights are saved: those after the last step, or those of the best measurement."""


class StopRule:
    """Watches one number; part of a checkpoint, so that a resumed run stops where it would have."""

    def __init__(self, config: StoppingConfig, *, better: Literal["lower", "higher"]) -> None:
        self._config = config
        self._sign = 1.0 if better == "higher" else -1.0
        self._best: float | None = None
        self._waited = 0

    @property
    def stopped(self) -> bool:
        """Whether patience is spent."""
        return self._waited >= self._config.patience

    @property
    def improved(self) -> bool:
        """Whether the last measurement is the best so far."""
        return self._best is not None and self._waited == 0

    def observe(self, value: float) -> bool:
        """Take one measurement; returns `stopped`."""
        gain = None if self._best is None else self._sign * (value - self._best)
        if self._best is None or (gain is not None and gain > self._config.min_improvement):
            self._best, self._waited = value, 0
        else:
            self._waited += 1
        return self.stopped

    def metrics(self) -> dict[str, float]:
        """The best measurement so far, and how many came after it; nothing before the first."""
        if self._best is None:
            return {}
        return {"best": self._best, "waited": float(self._waited)}

    def state_dict(self) -> dict[str, Any]:
        """Best value and measurements since."""
        return {"best": self._best, "waited": self._waited}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from an earlier attempt."""
        self._best, self._waited = state["best"], int(state["waited"])
