"""A policy that is not trained: another checkpoint in a role."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from posttrain.learning.episodes.players.base import PlayBench, Player, Seat

if TYPE_CHECKING:
    from posttrain.learning.episodes.drawing import Role
    from posttrain.learning.models.load import Policy
    from posttrain.learning.rollouts.engines.base import RolloutEngine, SamplingParams


class CheckpointPlayer(Player):
    """Let a checkpoint play the role, frozen: `inputs: {players.start: sft.policy}` connects it.

    Source: own.
    """

    kind: Literal["checkpoint"] = "checkpoint"
    name: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9_]*$")
    """Its name among what is connected to the port `players`."""
    temperature: float | None = Field(default=None, ge=0.0)
    """Of its draws; that of the policy, where none is given."""

    def ports(self) -> tuple[str, ...]:
        """Ask for the checkpoint; see `Player.ports`."""
        return (self.name,)

    def sit(self, table: PlayBench) -> Seat:
        """Load it; see `Player.sit`."""
        policy = frozen(table, self.name)
        return FrozenSeat(table, policy, engine_on(policy), self.temperature)


@dataclass(frozen=True)
class FrozenSeat(Seat):
    """A model at the table that nothing trains."""

    table: PlayBench
    policy: "Policy"
    engine: "RolloutEngine"
    temperature: float | None = None

    def speaker(self, params: "SamplingParams") -> "Role":
        """Draw from it; see `Seat.speaker`."""
        from posttrain.learning.episodes.drawing import Role

        if self.temperature is not None:
            params = replace(params, temperature=self.temperature)
        limits, context = self.table.limits, self.table.context
        return Role(self.engine, self.policy.tokenizer, params, context, limits)


def frozen(table: PlayBench, name: str) -> "Policy":
    """Load a checkpoint that nothing trains.

    Args:
        table: Where it is connected.
        name: Its name among what is connected to the port `players`.

    Returns:
        The policy.

    Raises:
        UserError: Its tokenizer is another one than that of the policy that is trained.

    """
    from posttrain.learning.models.load import load_policy
    from posttrain.learning.models.tokenizer import check_same_tokenizer

    policy = load_policy(table.checkpoint(name), device=table.device)
    where = f"the policy and player {name}"
    check_same_tokenizer(table.tokenizer, policy.tokenizer, where=where)
    policy.model.eval().requires_grad_(requires_grad=False)
    return policy


def engine_on(policy: "Policy") -> "RolloutEngine":
    """Open an engine in this process on a model that is small enough for it.

    Args:
        policy: What is drawn from.

    Returns:
        The engine.

    """
    from posttrain.learning.rollouts.engines.torch_engine import TorchRolloutEngine

    return TorchRolloutEngine(policy.model, policy.tokenizer)
