"""The trained policy itself, in a further role."""

from typing import ClassVar, Literal

from posttrain.learning.episodes.players.base import PlayBench, Player, PolicySeat, Seat


class PolicyPlayer(Player):
    """Let the trained policy play the role too, and learn from what it draws in it.

    In an evaluation it is the policy that is evaluated.

    Source: own.
    """

    LEARNS: ClassVar[bool] = True

    kind: Literal["policy"] = "policy"

    def sit(self, table: PlayBench) -> Seat:
        """Speak by the policy's own engine; see `Player.sit`."""
        return PolicySeat(table)
