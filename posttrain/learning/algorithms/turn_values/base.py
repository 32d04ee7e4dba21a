"""What all values of turns share: what is read, what is stored, and whom the policy learns from."""

from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

from pydantic import Field

from posttrain.stage.schedule import Schedulable
from posttrain.stage.slots import Part

if TYPE_CHECKING:
    from torch import Tensor


class EpisodeTurns(NamedTuple):
    """What is known of the turns of some episodes, those of each from the left."""

    rewards_BK: "Tensor"
    """What each turn was paid; what no turn is paid by itself lies on the last one."""
    taken_BK: "Tensor"
    """True where an episode has a turn."""
    fresh_B: "Tensor"
    """True of episodes that are there because the present policy drew them."""

    @property
    def earned_B(self) -> "Tensor":
        """What each episode earned in all."""
        return self.rewards_BK.sum(-1)


class TurnReadings(NamedTuple):
    """What a critic says of these turns; it has two heads H for each turn, of which none is 0."""

    said_BKH: "Tensor"
    """Of what was said in a turn, after all that was said before: Q."""
    begun_BKH: "Tensor"
    """Of the situation in which a turn begins: V."""
    posed_B: "Tensor"
    """Of an episode of which nothing but its problem is known."""


class TurnValues(Part, Schedulable):
    """How the values of turns are learned, and what they make of a turn.

    A critic of its own reads stored episodes, those of earlier steps too. It makes `updates` in a
    step, each on `episodes` of them, drawn with replacement; then it is asked how much better each
    turn was than its situation.
    """

    FRESH: ClassVar[bool] = False
    """True where an update reads as many episodes of the present step beside the stored ones."""

    gamma: float = Field(default=0.95, ge=0.0, le=1.0)
    """Discount by turns."""
    updates: int = Field(default=10, ge=1)
    """Updates of the critic in a step, before the policy's."""
    episodes: int = Field(default=64, ge=1)
    """Stored episodes that one of these updates is made on."""
    capacity: int = Field(default=10_000, ge=1)
    """Episodes that are kept; the oldest go first. They are in every checkpoint."""
    warmup: int = Field(default=0, ge=0)
    """Steps in which the critic learns alone."""
    teach: Literal["present", "stored", "both"] = "present"
    """What the policy learns from: what it drew for the step, stored episodes, or both."""
    recalled: int = Field(default=64, ge=1)
    """Stored episodes that the policy learns from in a step, drawn with replacement; the most of
    them, and without, where values choose by turns."""

    def without_effect(self) -> frozenset[str]:
        """`recalled`, where the policy learns from no stored episode."""
        return frozenset({"recalled"} if self.teach == "present" else ())

    @property
    def follows(self) -> float | None:
        """By which part the critic that targets are read from follows after an update.

        None where no target is read from a critic: there is no second one then.
        """
        return None

    @property
    def kept(self) -> float:
        """Share of the stored episodes, of the highest `standing`, that the policy may learn from.

        1 where none is left out.
        """
        return 1.0

    @property
    def familiar(self) -> tuple[float, float] | None:
        """Bounds of `1 / perplexity` of a stored turn that the present policy learns from.

        Only successes of earlier steps are asked. None where stored episodes are learned from
        whole.
        """
        return None

    def loss(self, read: TurnReadings, target: TurnReadings, turns: EpisodeTurns) -> "Tensor":
        """Give the critic's loss for each turn.

        Args:
            read: The critic's, with gradient.
            target: Of the critic that follows, without gradient; the critic's own if none does.
            turns: What is known of the turns.

        Returns:
            The loss of each turn ``[B, K]``, which counts where a turn was taken.

        """
        raise NotImplementedError

    def advantages(self, read: TurnReadings, target: TurnReadings, turns: EpisodeTurns) -> "Tensor":
        """Say how much better than its situation each turn was.

        Args:
            read: The critic's, without gradient.
            target: As for `loss`.
            turns: What is known of the turns.

        Returns:
            Advantages ``[B, K]``, which count where a turn was taken.

        """
        raise NotImplementedError

    def standing(self, read: TurnReadings, turns: EpisodeTurns) -> "Tensor":
        """Rank episodes by what the policy may learn from them; see `kept`.

        Args:
            read: The critic's, without gradient.
            turns: What is known of the turns.

        Returns:
            A number for each episode, ``[B]``.

        """
        del read
        return turns.earned_B

    def describe(self) -> str:
        """Sum the part up in some words, for lists and logs."""
        return str(self.kind)


class BootstrappedValues(TurnValues):
    """Values whose targets are read from a copy of the critic, which follows it slowly."""

    target_rate: float = Field(default=0.1, gt=0.0, le=1.0)
    """Part of the way that the copy goes to the critic after each update."""

    @property
    def follows(self) -> float | None:
        """See `TurnValues.follows`."""
        return self.target_rate
