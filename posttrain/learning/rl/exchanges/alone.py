"""Policies that are trained beside each other, and give each other nothing."""

from typing import TYPE_CHECKING, ClassVar, Literal

from posttrain.learning.rl.exchanges.base import Exchange, ExchangeRound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from posttrain.learning.rl.generation import Generation
    from posttrain.learning.rl.member import Member


class Alone(Exchange):
    """Let every policy learn from what it drew itself: what an exchange is compared with.

    Source: own, what other exchanges are compared with.
    """

    LEAST: ClassVar[int] = 1

    kind: Literal["alone"] = "alone"

    def generations(self, members: "Sequence[Member]", at: ExchangeRound) -> "list[Generation]":
        """Draw for each by itself; see `Exchange.generations`."""
        return [member.generation(at.step, at.config) for member in members]
