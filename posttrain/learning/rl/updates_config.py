"""What the optimizer updates of a step are made of, beside the algorithm that makes them."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from posttrain.learning.algorithms.part import named_parts
from posttrain.learning.models.optimization import OptimizationConfig, OptimizerChoice
from posttrain.learning.models.optimizers.muon import Muon
from posttrain.learning.rl.balances.base import OWN_ROLLOUTS, Balance
from posttrain.learning.rl.balances.registry import BALANCES
from posttrain.learning.rl.rehearsals.base import Rehearsal
from posttrain.learning.rl.rehearsals.registry import REHEARSALS
from posttrain.learning.rl.replays.registry import ReplayConfig
from posttrain.stage.config import StageConfig
from posttrain.stage.slots import InSlot


class RlOptimization(OptimizationConfig):
    """Optimizer and learning rate; a falling rate keeps what large steps found."""

    optimizer: OptimizerChoice = Muon()
    """`muon` orthogonalizes the updates of the layers' matrices and leaves the rest to AdamW."""
    warmup_steps: int = Field(default=5, ge=0)
    """Optimizer updates over which the learning rate rises."""


class UpdatesConfig(StageConfig):
    """How the rollouts of a step are portioned into optimizer updates, and what joins them."""

    MECHANICS = frozenset({"micro_batch_tokens"})
    epochs: int = Field(default=1, ge=1)
    """Passes over the rollouts of a step."""
    minibatches: int = Field(default=1, ge=1)
    """Optimizer updates per pass, each on whole groups."""
    micro_batch_tokens: int = Field(default=4096, ge=1)
    """Padded tokens of one forward pass; a small one pads little, and gives the same gradient."""
    rehearsals: Annotated[
        dict[str, Annotated[Rehearsal, InSlot(REHEARSALS)]], named_parts(REHEARSALS)
    ] = {}
    """Second losses by name, each on the table that is connected to the port `rehearsals` under
    that name; a kind of that name needs no other word."""
    balance: Annotated[Balance, InSlot(BALANCES)] | None = None
    """How much the rollouts and each rehearsal count from step to step; none leaves them as they
    are."""

    replay: ReplayConfig | None = None
    """Which rollouts of earlier steps are learned from again, such as `recent`; none for none."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if OWN_ROLLOUTS in self.rehearsals:
            raise ValueError(
                f"a rehearsal may not be called {OWN_ROLLOUTS}, which is what the algorithm learns"
                " from; give it another name"
            )
        if self.balance is not None and all(each.APART for each in self.rehearsals.values()):
            raise ValueError(
                f"balance {self.balance.kind} weighs the rollouts against rehearsals, and there is"
                " none that is a term of every update; add one, or leave balance out"
            )
        return self


def refuse_in_backward(updates: UpdatesConfig, *, has_critic: bool) -> None:
    """Refuse what needs whole gradients, where weights are stepped as theirs come.

    Args:
        updates: What else is learned from.
        has_critic: Whether a value model learns beside the policy.

    Raises:
        ValueError: With the remedy.

    """
    wanted = {"updates.rehearsals": bool(updates.rehearsals), "algorithm.critic": has_critic}
    for name, is_there in wanted.items():
        if is_there:
            raise ValueError(
                f"optimization.in_backward steps weights as the gradient of the rollouts comes, but"
                f" {name} wants it whole; leave one of the two out"
            )
