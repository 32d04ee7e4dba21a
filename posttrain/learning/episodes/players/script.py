"""What the environment itself says for a role."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Literal

from posttrain.learning.episodes.asked import Cue, Reply, Speaker
from posttrain.learning.episodes.environments.base import Act, Environment
from posttrain.learning.episodes.players.base import PlayBench, Player, Seat
from posttrain.stage.errors import UserError
from posttrain.stage.seeds import purpose_seed

if TYPE_CHECKING:
    from posttrain.learning.rollouts.engines.base import SamplingParams


class ScriptPlayer(Player):
    """Let the environment play the role by its script, as where nobody else is named for it.

    Source: own.
    """

    kind: Literal["script"] = "script"

    def sit(self, table: PlayBench) -> Seat:  # noqa: ARG002 - it needs nothing
        """Ask the environment; see `Player.sit`."""
        return _ScriptSeat()


class _ScriptSeat(Seat):
    def speaker(self, params: "SamplingParams") -> Speaker:  # noqa: ARG002 - nothing is sampled
        return Scripted()


@dataclass(frozen=True)
class Scripted(Speaker):
    """Speaks for roles that nobody plays."""

    bound: Sequence[str] = ()
    """Roles that somebody plays, for the sentence where the environment has no script."""

    def reply(self, asked: Sequence[Cue], environment: Environment, *, seed: int) -> list[Reply]:
        """Ask the environment what it says; see `Speaker.reply`."""
        return [self._reply(each, environment, seed) for each in asked]

    def _reply(self, asked: Cue, environment: Environment, seed: int) -> Reply:
        role = asked.ask.role
        draw = Random(purpose_seed(seed, "unbound", asked.episode, role, asked.turn))
        said = environment.unbound(asked.state, role, draw)
        if said is None:
            only = f", and there is only {', '.join(self.bound)}" if self.bound else ""
            raise UserError(
                f"environment {environment.kind} asks {role}{only}, and has no script for it; let"
                f" it ask another role, or say under `roles` who plays {role}"
            )
        return Reply(Act(role, said))
