"""How episodes are played: the parameters that RL, probe and evaluation share."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Self

from pydantic import Field, model_validator

from posttrain.learning.episodes.contexts.base import ContextManager
from posttrain.learning.episodes.contexts.registry import CONTEXT_MANAGERS
from posttrain.learning.episodes.contexts.whole import Whole
from posttrain.learning.episodes.environments.base import POLICY, Environment, role_of
from posttrain.learning.episodes.environments.single import Single
from posttrain.learning.episodes.players.base import PORT, Player, PolicySeat
from posttrain.learning.episodes.players.registry import PLAYERS
from posttrain.learning.episodes.registry import EPISODE_ENVIRONMENTS
from posttrain.stage.config import StageConfig
from posttrain.stage.errors import UserError, nearest
from posttrain.stage.slots import InSlot

if TYPE_CHECKING:
    from posttrain.learning.episodes.asked import Speaker
    from posttrain.learning.episodes.players.base import PlayBench, Seat
    from posttrain.learning.rollouts.engines.base import SamplingParams


class PlayConfig(StageConfig):
    """What answers the policy, who plays beside it, and what ends an episode."""

    environment: Annotated[Environment, InSlot(EPISODE_ENVIRONMENTS)] = Single()
    """What answers the policy: `posttrain env list`."""
    most_turns: int = Field(default=4, ge=1)
    """Rounds after which an episode ends as it stands: whoever speaks, the policy or another role,
    and all who speak at once are one round. A whole game of tictactoe has 9."""
    roles: dict[str, Annotated[Player, InSlot(PLAYERS)]] = Field(default_factory=dict)
    """Who plays each further role of the environment; one that is not named goes by its script."""
    context: Annotated[ContextManager, InSlot(CONTEXT_MANAGERS)] = Whole()
    """What becomes of a context that fills: `whole` ends the episode there."""
    most_context: int | None = Field(default=None, ge=1)
    """Tokens, read and drawn, behind which a role begins no turn; the engine's context if null."""
    most_drawn: int | None = Field(default=None, ge=1)
    """Tokens that a role draws in an episode before it begins no further turn; no limit if null."""
    most_seconds: float | None = Field(default=None, gt=0.0)
    """Deadline of the episodes that are played together, asked between rounds: those that are not
    over by then are not judged, and are counted. Environments that wait have limits of their own
    for each answer; null waits for all."""

    @model_validator(mode="after")
    def _policy_plays_itself(self) -> Self:
        if POLICY in self.roles:
            raise ValueError(
                f"roles.{POLICY}: the role `{POLICY}` is always played by the policy of the stage;"
                " name the environment's other roles"
            )
        return self

    @model_validator(mode="after")
    def _environment_asks_them(self) -> Self:
        # A method binds roles of whichever environment a recipe names beside it.
        if "environment" in self.model_fields_set and (complaint := self._unasked()):
            raise ValueError(complaint)
        return self

    def _unasked(self) -> str:
        """Complain of the first role that the environment does not ask; empty if there is none."""
        known = sorted(self.environment.roles_asked())
        for role in self.roles:
            if role_of(role, known) is None:
                only = f"it asks {', '.join(known)}" if known else "it asks the policy alone"
                return (
                    f"roles.{role}: environment {self.environment.kind} asks no role of this name"
                    f"{nearest(role, known) or f'; {only}'}"
                )
        return ""

    def seated(self, table: "PlayBench") -> "Seats":
        """Let everybody who plays sit down.

        Args:
            table: With what they play; context and limits are those of this config.

        Returns:
            Who plays each role, the policy in its own.

        Raises:
            UserError: Somebody is bound to a role that the environment does not ask.

        """
        if complaint := self._unasked():
            raise UserError(complaint)
        from posttrain.learning.episodes.asked import TokenLimits

        limits = TokenLimits(self.most_context, self.most_drawn, self.drawn_at_once)
        table = replace(table, context=self.context, limits=limits)
        seats = {name: player.sit(table) for name, player in self.roles.items()}
        return Seats({POLICY: PolicySeat(table), **seats})

    @property
    def drawn_at_once(self) -> int | None:
        """Most tokens of a turn that are drawn in a round; None where a turn is drawn at once."""
        return None

    @property
    def checkpoints_asked(self) -> dict[str, str]:
        """The ports that players ask for checkpoints -> the role that does."""
        return {
            f"{PORT}.{port}": role for role, player in self.roles.items() for port in player.ports()
        }

    @property
    def learning(self) -> tuple[str, ...]:
        """The roles whose draws are those of the trained policy, its own first."""
        return (POLICY, *(name for name, player in self.roles.items() if player.LEARNS))


class Seats(NamedTuple):
    """Everybody who plays in a stage, by role."""

    by_role: "Mapping[str, Seat]"

    def speakers(self, params: "SamplingParams") -> "dict[str, Speaker]":
        """Return who speaks in the episodes of one round, by role.

        Args:
            params: How the policy is sampled in it.

        """
        return {role: seat.speaker(params) for role, seat in self.by_role.items()}

    def begin(self, step: int) -> None:
        """Tell everybody that a 0-based step of training begins."""
        for seat in self.by_role.values():
            seat.begin(step)

    def state_dict(self) -> dict[str, Any]:
        """What the players keep from step to step, by role."""
        states = {role: seat.state_dict() for role, seat in self.by_role.items()}
        return {role: state for role, state in states.items() if state}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        for role, each in state.items():
            self.by_role[role].load_state_dict(each)
