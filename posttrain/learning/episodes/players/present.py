"""The trained policy as it is now, in a role that it does not learn from."""

from typing import Literal

from posttrain.learning.episodes.players.base import PlayBench, Player, PolicySeat, Seat


class PresentPlayer(Player):
    """Let the present policy play the role, and learn nothing from what it draws there.

    What it says is read like anybody else's words: information that a policy gives itself, as in
    SSRL, bears no loss. In an evaluation it is the policy that is evaluated.
    """

    SOURCE = "SSRL, arXiv 2508.10874: the mask on information of one's own"

    kind: Literal["present"] = "present"

    def sit(self, table: PlayBench) -> Seat:
        """Speak by the policy's own engine; see `Player.sit`."""
        return PolicySeat(table)
