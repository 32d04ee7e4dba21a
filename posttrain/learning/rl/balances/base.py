"""The slot of the balances: what a part of it implements."""

from collections.abc import Mapping, Sequence
from typing import Any

from posttrain.stage.slots import Part

OWN_ROLLOUTS = "rollouts"
"""The objective that is the algorithm's own; the others are called as the rehearsals are."""


class BalanceAtWork:
    """Weighs the objectives of each step; `state_dict` holds what it remembers."""

    def weights(self) -> Mapping[str, float]:
        """Give the weight of each objective in the updates of a step."""
        raise NotImplementedError

    def observe(self, measured: Mapping[str, float]) -> None:
        """Take note of a step.

        Args:
            measured: How far each objective is from being met, lower is better: of rehearsals the
                loss before its coefficient, of `rollouts` the share that is not solved. One that
                was not measured in the step is not there.

        """

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes, as plain values."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""


class Balance(Part):
    """How much the rollouts and each rehearsal count; it multiplies what they have otherwise."""

    def start(self, objectives: Sequence[str]) -> BalanceAtWork:
        """Begin a run.

        Args:
            objectives: `rollouts`, and the names of the rehearsals that are terms of every update.

        Returns:
            What weighs them.

        """
        raise NotImplementedError
