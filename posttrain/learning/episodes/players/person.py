"""A person in a role: whoever sits at the terminal is asked, and never twice for the same."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from posttrain.learning.episodes.asked import Cue, Reply, Speaker
from posttrain.learning.episodes.environments.base import Act, Environment
from posttrain.learning.episodes.players.base import PlayBench, Player, Seat
from posttrain.stage.errors import UserError
from posttrain.stage.needs import TERMINAL

if TYPE_CHECKING:
    from posttrain.backends.endpoint.cache import RequestCache
    from posttrain.backends.terminal import PersonTerminal
    from posttrain.learning.rollouts.engines.base import SamplingParams


class PersonPlayer(Player):
    """Let a person play the role, who reads at the terminal what it reads and types what it says.

    An answer is kept, by all that was read and by the draw that it is part of, before anybody goes
    on with it: a run that is gone on with, or made again, asks for what was never answered alone.

    Source: own.
    """

    kind: Literal["person"] = "person"
    about: str = ""
    """What the person is told about the role with each question."""
    sitting: str = ""
    """Another word here, and the same questions are asked again."""

    def reaches(self) -> frozenset[str]:
        """Ask at the terminal."""
        return frozenset({TERMINAL})

    def remarks(self) -> tuple[str, ...]:
        """Say that somebody has to be there; see `StageConfig.remarks`."""
        return (
            "player person: a person at the terminal is asked; a run without a terminal is refused",
        )

    def beyond_processes(self, processes: int) -> str | None:
        """Say that each would ask; see `StageConfig.beyond_processes`."""
        if processes == 1:
            return None
        return (
            "player person: several processes share the policy out, and each would ask; set"
            " resources.processes to 1"
        )

    def sit(self, table: PlayBench) -> Seat:  # noqa: ARG002 - who is asked reads no token
        """Open the terminal; see `Player.sit`."""
        from posttrain.backends.endpoint.cache import RequestCache, default_path
        from posttrain.backends.terminal import open_terminal

        path = default_path()
        kept = RequestCache(path)
        return _PersonSeat(self, open_terminal("player person", path), kept)


@dataclass(frozen=True)
class _PersonSeat(Seat):
    config: PersonPlayer
    terminal: "PersonTerminal"
    kept: "RequestCache"

    def speaker(self, params: "SamplingParams") -> Speaker:  # noqa: ARG002 - nothing is sampled
        return _Asked(self)


@dataclass(frozen=True)
class _Asked(Speaker):
    seat: _PersonSeat

    def reply(self, asked: Sequence[Cue], environment: Environment, *, seed: int) -> list[Reply]:
        """Ask about one episode after the other; see `Speaker.reply`."""
        return [
            Reply(Act(each.ask.role, self._said(each, environment.kind, seed, number, len(asked))))
            for number, each in enumerate(asked, start=1)
        ]

    def _said(self, asked: Cue, kind: str, seed: int, number: int, among: int) -> str:
        from posttrain.backends.endpoint.cache import request_key

        heard = [[told.author, told.text] for told in asked.heard]
        question = {"environment": kind, "episode": asked.episode, "turn": asked.turn}
        question |= {"role": asked.ask.role, "seed": seed, "heard": heard}
        key = request_key("person", question, self.seat.config.sitting)
        if isinstance(kept := self.seat.kept.get(key), str):
            return kept
        role = asked.ask.role
        here = f"{kind}: you are {role}; episode {asked.episode}, {number} of {among}"
        read = (f"{told.author}: {told.text}" for told in asked.heard)
        about = self.seat.config.about
        said = self.seat.terminal.ask(
            "\n".join((here, *([about] if about else []), *read)), f"{role}> "
        )
        if said is None:
            raise UserError(
                f"whoever plays {role} ended the input; run the same command again to go on, and"
                " only what was not answered is asked"
            )
        self.seat.kept.put(key, said)
        return said
