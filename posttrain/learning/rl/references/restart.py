"""The reference becomes the policy and the optimizer begins anew, where learning has stalled."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from posttrain.learning.rl.references.base import ReferencePart, ReferenceRule
from posttrain.learning.training.stopping import StoppingConfig, StopRule


class Restart(ReferencePart):
    """Make the reference the policy, and forget the optimizer's state, by step or on a plateau.

    A divergence from a policy that was left long ago comes to rule the loss. After the restart it
    is 0, and moments that were gathered under it are gone.
    """

    SOURCE = "ProRL, arXiv 2505.24864, section 2.3.2 (reference policy reset)"
    METRICS: ClassVar[Mapping[str, str]] = {
        "reference_restarts": "restarts of reference and optimizer before the step"
    }

    kind: Literal["restart"] = "restart"
    """A hard reset of reference and optimizer."""
    every: int | None = Field(default=None, ge=1)
    """Steps between two restarts; none leaves it to the metric."""
    at: int | None = Field(default=None, ge=1)
    """The one step behind which it restarts, too; none for no such step."""
    metric: str | None = Field(default=None, min_length=1)
    """A metric of the steps, such as rl/reward, whose plateau restarts; none leaves it to steps."""
    better: Literal["higher", "lower"] = "higher"
    """Which way of the metric is good."""
    patience: int = Field(default=20, ge=1)
    """Steps in a row, since the last restart, that may be no better than the best."""
    min_improvement: float = Field(default=0.0, ge=0.0)
    """How much better than the best a step must be to count as better."""

    @model_validator(mode="after")
    def _has_a_rule(self) -> Self:
        if self.every is None and self.at is None and self.metric is None:
            raise ValueError(
                "kind restart needs to know when: set every or at, or a metric whose plateau"
                " restarts it"
            )
        return self

    @property
    def follows(self) -> str | None:
        """The metric."""
        return self.metric

    def start(self) -> ReferenceRule:
        """Begin to watch; see `ReferencePart.start`."""
        return RestartRule(self)


class RestartRule(ReferenceRule):
    """Counts steps and watches the metric since the last restart."""

    def __init__(self, config: Restart) -> None:
        self._config = config
        self._plateau = self._watch()

    def observe(self, metrics: Mapping[str, float], *, step: int) -> bool:
        """Go by the step, or by the plateau of the metric; see `ReferenceRule.observe`."""
        config, number = self._config, step + 1
        due = number == config.at or (config.every is not None and number % config.every == 0)
        if config.metric in metrics:
            assert config.metric is not None
            due = self._plateau.observe(metrics[config.metric]) or due
        if due:
            self._plateau = self._watch()
        return due

    def _watch(self) -> StopRule:
        config = self._config
        patience = StoppingConfig(patience=config.patience, min_improvement=config.min_improvement)
        return StopRule(patience, better=config.better)

    def state_dict(self) -> dict[str, Any]:
        """What the plateau is measured by."""
        return {"plateau": self._plateau.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        self._plateau.load_state_dict(state["plateau"])
