"""The rule by which a run ends before its last step."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from posttrain.learning.training.stopping import StoppingConfig, StopRule


class StopConfig(StoppingConfig):
    """When to stop before the last step."""

    metric: str = "rl/reward"
    """One of the metrics of a step."""
    better: Literal["higher", "lower"] = "higher"
    """Which way is good."""
    patience: int = Field(default=20, ge=1)
    """Steps in a row that may be no better than the best before training stops."""
    target: float | None = None
    """Stop as soon as the metric is this good, too; none waits for `patience` alone."""


class Stopping:
    """Watches one metric of the steps; a step that did not measure it does not count."""

    def __init__(self, config: StopConfig) -> None:
        self._config = config
        self._rule = StopRule(config, better=config.better)
        self.metric = config.metric
        self.reason = ""
        self.improved = False
        """Whether the step that was observed last is the best so far."""

    def observe(self, metrics: Mapping[str, float]) -> None:
        """Take the metrics of one step."""
        config, self.improved = self._config, False
        if config.metric not in metrics:
            return
        value = metrics[config.metric]
        spent = self._rule.observe(value)
        self.improved = self._rule.improved
        if config.target is not None and self._reached(value, config.target):
            self.reason = (
                f"{config.metric} is {value:.4g}, which meets the target {config.target:g}"
            )
        elif spent:
            best = self._rule.metrics()["best"]
            self.reason = (
                f"{config.metric} was no better than {best:.4g} for {config.patience} steps"
            )

    def _reached(self, value: float, target: float) -> bool:
        return value >= target if self._config.better == "higher" else value <= target

    def state_dict(self) -> dict[str, Any]:
        """The rule's memory, and why it stopped the run."""
        return {"rule": self._rule.state_dict(), "reason": self.reason}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        self._rule.load_state_dict(state["rule"])
        self.reason = str(state["reason"])
