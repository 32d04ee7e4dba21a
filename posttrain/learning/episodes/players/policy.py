"""The trained policy itself, in a further role."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from posttrain.learning.episodes.players.base import PlayBench, Player, Seat

if TYPE_CHECKING:
    from posttrain.learning.episodes.drawing import Role
    from posttrain.learning.rollouts.engines.base import SamplingParams


class PolicyPlayer(Player):
    """Let the trained policy play the role too, and learn from what it draws in it.

    In an evaluation it is the policy that is evaluated.
    """

    LEARNS: ClassVar[bool] = True

    kind: Literal["policy"] = "policy"

    def sit(self, table: PlayBench) -> Seat:
        """Speak by the policy's own engine; see `Player.sit`."""
        return PolicySeat(table)


@dataclass(frozen=True)
class PolicySeat(Seat):
    """The policy at the table: what every episode has in the role `policy`."""

    table: PlayBench

    def speaker(self, params: "SamplingParams") -> "Role":
        """Draw from the present policy; see `Seat.speaker`."""
        from posttrain.learning.episodes.drawing import Role

        table = self.table
        return Role(table.engine, table.tokenizer, params, table.context, table.limits)
