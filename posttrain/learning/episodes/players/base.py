"""The slot of the players: what a part of it implements."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from posttrain.learning.episodes.asked import Speaker, TokenLimits
from posttrain.learning.episodes.contexts.base import ContextManager
from posttrain.learning.episodes.contexts.whole import Whole
from posttrain.stage.errors import UserError, nearest
from posttrain.stage.slots import Part

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from posttrain.learning.episodes.drawing import Role
    from posttrain.learning.models.load import Policy
    from posttrain.learning.rollouts.engines.base import RolloutEngine, SamplingParams

PORT = "players"
"""The port that brings checkpoints to players, by the names that recipes give them."""


@dataclass(frozen=True)
class PlayBench:
    """What players sit down with, for the whole run of a stage."""

    engine: "RolloutEngine"
    """Draws tokens from the present policy."""
    tokenizer: "PreTrainedTokenizerBase"
    """Of the policy."""
    policy: "Policy | None" = None
    """That policy: its weights change while it is trained. None where no process has all of it."""
    device: str = "cpu"
    """Where further models go, as torch names it."""
    checkpoints: Mapping[str, Path] = field(default_factory=dict)
    """What is connected to the port `players`, by name."""
    context: ContextManager = field(default_factory=Whole)
    limits: TokenLimits = TokenLimits()

    def checkpoint(self, name: str) -> Path:
        """Return the folder of a checkpoint by its name among `players`."""
        if name not in self.checkpoints:
            remedy = f"; connect it, as in inputs: {{{PORT}.{name}: sft.policy}}"
            known = nearest(name, self.checkpoints) or remedy
            raise UserError(f"a player asks for the checkpoint {PORT}.{name}{known}")
        return self.checkpoints[name]


class Seat:
    """A player at a table; `state_dict` holds what it changes from step to step."""

    @abstractmethod
    def speaker(self, params: "SamplingParams") -> Speaker:
        """Return who speaks in the episodes of one round.

        Args:
            params: How the policy is sampled in it, with the seed of the round.

        """
        raise NotImplementedError

    def begin(self, step: int) -> None:
        """Take note that a 0-based step of training begins, with the policy as it now is."""

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes, as tensors and plain values."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""


class Player(Part):
    """Who plays a role beside the policy; derive from it, and define `sit`."""

    LEARNS: ClassVar[bool] = False
    """True where what it draws is learned from, as the trained policy draws it."""

    def ports(self) -> tuple[str, ...]:
        """Name the checkpoints that it asks for, among those connected to `players`."""
        return ()

    @abstractmethod
    def sit(self, table: PlayBench) -> Seat:
        """Begin a run of a stage.

        Args:
            table: What there is to play with.

        """
        raise NotImplementedError


@dataclass(frozen=True)
class PolicySeat(Seat):
    """The policy at the table: what every episode has in the role `policy`."""

    table: PlayBench

    def speaker(self, params: "SamplingParams") -> "Role":
        """Draw from the present policy; see `Seat.speaker`."""
        from posttrain.learning.episodes.drawing import Role

        table = self.table
        return Role(table.engine, table.tokenizer, params, table.context, table.limits)
