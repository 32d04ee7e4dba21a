"""The simplest environment: one answer to a problem, and nothing that answers it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from posttrain.learning.episodes.environments.base import (
    POLICY,
    Act,
    Ask,
    Environment,
    EpisodeState,
    Situation,
)

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem


class Single(Environment):
    """Ask once: what the policy says is its answer.

    Source: own, an episode of one turn.
    """

    kind: Literal["single"] = "single"

    def start(self, problem: "Problem", seed: int) -> Situation:  # noqa: ARG002 - see the base
        """Ask; see `Environment.start`."""
        return Situation({}, (Ask(POLICY),))

    def step(self, state: EpisodeState, acts: Sequence[Act], seed: int) -> Situation:  # noqa: ARG002
        """It is over; see `Environment.step`."""
        return Situation(state)

    def authors(self) -> tuple[str, ...]:
        """Nobody speaks; see `Environment.authors`."""
        return ()
