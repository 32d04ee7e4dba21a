"""The slot of the rehearsals: what a part of it implements, and how its rows come in turn."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from pydantic import Field

from posttrain.stage.schedule import Schedulable
from posttrain.stage.seeds import shuffler
from posttrain.stage.slots import Part

if TYPE_CHECKING:
    from torch import Tensor

    from posttrain.learning.rl.rollout import Group


class RehearsalRow(NamedTuple):
    """What is known of a row before it is chosen."""

    problem_id: str
    """What it answers."""
    solve_rate: float
    """Share of the table's rows on this problem that are right, of those that were judged."""


class RehearsalStream:
    """Chooses the rows of each update; `state_dict` holds what it changes from step to step."""

    def choose(self, count: int, *, seed: int, step: int, index: int) -> Sequence[int]:
        """Choose what an update reads.

        Args:
            count: How many rows are wanted.
            seed: Of the run.
            step: 0-based step.
            index: 0-based update, counted through the run.

        Returns:
            Places of rows; none where nothing is rehearsed now.

        """
        raise NotImplementedError

    def observe(self, groups: "Sequence[Group]") -> None:
        """Take note of the rollouts of a step, all that were drawn, before its own update."""

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes, as plain values."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""


class InTurn(RehearsalStream):
    """All rows one after the other, in an order of its own in every pass over the table."""

    def __init__(self, size: int) -> None:
        self._size = size

    def choose(self, count: int, *, seed: int, step: int, index: int) -> Sequence[int]:  # noqa: ARG002
        """Take the next rows, by the number of the update; see `RehearsalStream.choose`."""
        first, chosen = index * count, list[int]()
        for number in range(first // self._size, (first + count - 1) // self._size + 1):
            order = list(range(self._size))
            shuffler(seed, "rehearsal", number).shuffle(order)
            begin, end = (
                max(0, min(self._size, at - number * self._size)) for at in (first, first + count)
            )
            chosen += order[begin:end]
        return chosen


class Rehearsal(Part, Schedulable):
    """A loss beside that of the rollouts, on answers in a table that is connected for it."""

    APART: ClassVar[bool] = False
    """True where it makes an optimizer update of its own behind those of a step, at most one; else
    it is a term of the loss in every update."""

    coefficient: float = Field(default=1.0, gt=0.0)
    """Weight of its loss, which is a mean over the tokens of the rows that an update reads."""
    rows: int = Field(default=32, ge=1)
    """Rows of the table that an update reads."""

    def admits(self, row: RehearsalRow) -> bool:  # noqa: ARG002
        """Tell whether a row is ever read; rows that were found wrong are left out before."""
        return True

    def start(self, rows: Sequence[RehearsalRow]) -> RehearsalStream:
        """Begin a run with the rows that are admitted."""
        return InTurn(len(rows))

    def token_loss(self, logprobs_BT: "Tensor", begun_BT: "Tensor") -> "Tensor":
        """Give the loss of each token.

        Args:
            logprobs_BT: Of the policy that learns, in nats, with gradient.
            begun_BT: Of the policy that RL began with.

        Returns:
            `[B, T]`; what is said of tokens that bear no loss does not count.

        """
        raise NotImplementedError
