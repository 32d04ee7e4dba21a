"""A model behind an endpoint in a role; what it said once is kept by what it was asked."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from posttrain.backends.endpoint.config import Endpoint
from posttrain.learning.episodes.asked import Cue, Reply, Speaker
from posttrain.learning.episodes.environments.base import Act, Environment
from posttrain.learning.episodes.players.base import PlayBench, Player, Seat
from posttrain.stage.seeds import purpose_seed

if TYPE_CHECKING:
    from posttrain.backends.endpoint.chat import Question
    from posttrain.learning.rollouts.engines.base import SamplingParams


class EndpointPlayer(Player):
    """Ask a model behind an endpoint, with all that the role has been told and has said.

    Source: own.
    """

    kind: Literal["endpoint"] = "endpoint"
    endpoint: Endpoint
    """Where it answers."""
    system: str = ""
    """What it is told about its role before everything else."""
    temperature: float = Field(default=0.0, ge=0.0)
    """Of its draws."""
    max_tokens: int = Field(default=256, ge=1)
    """Most tokens of a turn."""

    def sit(self, table: PlayBench) -> Seat:  # noqa: ARG002 - it needs no model of ours
        """Speak through the endpoint; see `Player.sit`."""
        return _EndpointSeat(self)


@dataclass(frozen=True)
class _EndpointSeat(Seat):
    config: EndpointPlayer

    def speaker(self, params: "SamplingParams") -> Speaker:  # noqa: ARG002 - it has its own
        return _Far(self.config)


@dataclass(frozen=True)
class _Far(Speaker):
    config: EndpointPlayer

    def reply(self, asked: Sequence[Cue], environment: Environment, *, seed: int) -> list[Reply]:  # noqa: ARG002
        """Ask about all episodes at once; see `Speaker.reply`."""
        from posttrain.backends.endpoint.chat import reply_to
        from posttrain.backends.endpoint.client import open_client

        questions = [self._question(each, seed) for each in asked]
        said = reply_to(open_client(self.config.endpoint), questions)
        return [Reply(Act(each.ask.role, text)) for each, text in zip(asked, said, strict=True)]

    def _question(self, asked: Cue, seed: int) -> "Question":
        from posttrain.backends.endpoint.chat import Question

        *before, last = asked.heard
        chance = purpose_seed(seed, "endpoint", asked.episode, asked.ask.role, asked.turn)
        return Question(
            last.text,
            system=self.config.system,
            before=tuple((_speaker_of(told.author), told.text) for told in before),
            temperature=self.config.temperature,
            max_tokens=self.config.max_tokens,
            # Greedy answers to equal questions are one: they are asked for once.
            seed=chance % 2**31 if self.config.temperature else 0,
        )


def _speaker_of(author: str) -> str:
    return "assistant" if author == "assistant" else "user"
