"""Episodes without a model: what speaks is a function of where the episode stands."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from posttrain.learning.episodes.contract import answered, begun
from posttrain.learning.episodes.environments.base import (
    Act,
    Environment,
    EpisodeState,
    Said,
    Situation,
)
from posttrain.learning.episodes.episode import End, Episode, start_seed, turn_seed

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem

Speak = Callable[[EpisodeState, str], str]
"""What a role says: of the state in which it is asked, and its name."""


class ScriptedEpisode(NamedTuple):
    """An episode that is to be played by a script."""

    problem: "Problem"
    speak: Speak
    """Speaks for every role."""
    seed: int
    """All that the environment draws depends on it and the problem."""


def play_script(
    environment: Environment,
    problem: "Problem",
    speak: Speak,
    *,
    seed: int,
    most_turns: int,
    heard: Callable[[Situation], None] | None = None,
) -> Episode:
    """Play one episode by a script, as `play` does by policies.

    Args:
        environment: What answers; it is closed at the end.
        problem: What the episode is about.
        speak: Speaks for every role.
        seed: All that the environment draws depends on it and the problem.
        most_turns: The episode ends after so many.
        heard: Is told every situation as it comes, the first one too.

    Returns:
        The episode, which has no tokens.

    """
    asked = [ScriptedEpisode(problem, speak, seed)]
    (episode,) = play_scripts(environment, asked, most_turns=most_turns, heard=heard)
    return episode


def play_scripts(
    environment: Environment,
    asked: Sequence[ScriptedEpisode],
    *,
    most_turns: int,
    heard: Callable[[Situation], None] | None = None,
) -> list[Episode]:
    """Play episodes side by side, so that an environment which runs programs runs them at once.

    Args:
        environment: What answers; each episode is closed at the end, however the others ended.
        asked: What is played, each by its own script.
        most_turns: An episode ends after so many.
        heard: Is told every situation as it comes, the first ones too.

    Returns:
        The episodes in their order, each what it is alone.

    """
    hear = heard or (lambda _: None)
    games: list[_Scene] = []
    with ExitStack() as stack:
        for each in asked:
            first = begun(environment, each.problem, start_seed(each.seed, each.problem.id))
            games.append(_Scene(each, [first]))
            stack.callback(_close, environment, games[-1])
            hear(first)
        while going := [game for game in games if game.goes_on(most_turns)]:
            turns = [game.spoken() for game in going]
            found = answered(environment, turns, [game.situations for game in going])
            for game, turn, after in zip(going, turns, found, strict=True):
                game.log.append(tuple(turn.acts))
                game.situations.append(after)
                hear(after)
    return [game.episode for game in games]


@dataclass
class _Scene:
    """An episode that a script plays."""

    asked: ScriptedEpisode
    situations: list[Situation]
    log: list[tuple[Act, ...]] = field(default_factory=list)

    def goes_on(self, most_turns: int) -> bool:
        last = self.situations[-1]
        return bool(last.asks) and not last.failed and len(self.log) < most_turns

    def spoken(self) -> Said:
        """What its roles say next."""
        problem, speak, seed = self.asked
        state, asks = self.situations[-1].state, self.situations[-1].asks
        acts = tuple(Act(ask.role, speak(state, ask.role)) for ask in asks)
        return Said(state, acts, turn_seed(seed, problem.id, len(self.log)))

    @property
    def episode(self) -> Episode:
        last = self.situations[-1]
        end: End = "failed" if last.failed else "turns" if last.asks else "over"
        return Episode(self.asked.problem.id, (), tuple(self.situations), tuple(self.log), end)


def _close(environment: Environment, game: _Scene) -> None:
    environment.close(game.situations[-1].state)
