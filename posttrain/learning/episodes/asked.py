"""How the driver of episodes asks for words: what a role is given, and what it gives back."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from posttrain.learning.episodes.environments.base import (
    POLICY,
    Act,
    Ask,
    Environment,
    EpisodeState,
    Told,
)

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from posttrain.data.schemas import Problem
    from posttrain.learning.episodes.episode import Segment
    from posttrain.learning.rollouts.engines.base import Prompt, Sample, SamplingParams


@dataclass(frozen=True)
class Cue:
    """What a role is given when it is to speak in one episode."""

    episode: str
    """Id of the episode: problem and place in the group."""
    index: int
    """Place in the group."""
    turn: int
    """0-based turn of the episode."""
    problem: "Problem"
    prompt: "Prompt"
    """The problem's prompt as tokens."""
    state: EpisodeState
    """Where the episode stands: for a script, which knows the environment."""
    ask: Ask
    before: "tuple[Segment, ...]"
    """What the role has read and drawn as tokens, the present segment last; none at first."""
    heard: tuple[Told, ...]
    """All that it has been told and has said, what it is told now last; its own is by `assistant`.
    It begins with the problem's prompt, or with what the role read first in place of that."""
    cut: bool
    """Whether its last act was cut off."""
    late: bool = False
    """Whether it began after others of its group, so that it is no sample of the same call."""
    begun: int = 0
    """Tokens that it drew in this turn before it was interrupted; it goes on behind them."""

    @property
    def opens(self) -> bool:
        """Whether it speaks first with all of its group: they are samples of one prompt."""
        return not (self.turn or self.late or self.begun)

    @property
    def place(self) -> tuple[str, int]:
        """What a draw of its next turn is named by: it and the seed decide the draw."""
        if self.opens:
            return f"{self.prompt.id}{self._other}", self.index
        return self.place_alone, 0

    @property
    def place_alone(self) -> str:
        """What a draw of its next turn is named by that is no sample of its group's prompt."""
        behind = f"+{self.begun}" if self.begun else ""
        return f"{self.episode}{self._other}@{self.turn}{behind}"

    @property
    def _other(self) -> str:
        return "" if self.ask.role == POLICY else f"#{self.ask.role}"


class Reply(NamedTuple):
    """What a role says."""

    act: Act | None
    """None where it had no room to speak, or is not done."""
    segments: "tuple[Segment, ...]" = ()
    """What it has now read and drawn as tokens; none where it does not speak by tokens."""
    goes_on: bool = False
    """True where it is interrupted within its turn, and goes on in the next round."""

    @property
    def silent(self) -> bool:
        """True where it had no room to speak."""
        return self.act is None and not self.goes_on


class Speaker:
    """Somebody who plays a role, in the episodes of one round of sampling."""

    @abstractmethod
    def reply(self, asked: Sequence[Cue], environment: Environment, *, seed: int) -> list[Reply]:
        """Speak in all episodes of a round that ask for it.

        Args:
            asked: One for each episode; all for the same role.
            environment: What the episodes are played in.
            seed: Of the round in which the episodes began; what is said may depend on it, the
                episode, the turn, and what the speaker is made of, and on nothing else.

        Returns:
            One reply for each, in their order.

        """
        raise NotImplementedError


class TokenLimits(NamedTuple):
    """How many tokens a role may have; None is no limit beside the engine's context."""

    context: int | None = None
    """A role begins no turn behind so many tokens of one segment, read and drawn."""
    drawn: int | None = None
    """A role begins no turn once it has drawn so many tokens in an episode."""
    at_once: int | None = None
    """A role draws so many tokens of a turn in a round, and goes on with it in the next."""


class TokenRole(Protocol):
    """A role that speaks by tokens, as a context manager sees it."""

    @property
    def tokenizer(self) -> "PreTrainedTokenizerBase":
        """Of its policy."""
        ...

    @property
    def params(self) -> "SamplingParams":
        """How it draws."""
        ...

    def sample(self, prompts: "Sequence[Prompt]", params: "SamplingParams") -> "list[Sample]":
        """Draw behind the prompts that leave room.

        Args:
            prompts: Any number, none too.
            params: How to draw.

        Returns:
            Their samples, as the engine gives them.

        """
        ...
