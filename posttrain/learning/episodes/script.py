"""Episodes without a model: what speaks is a function of where the episode stands."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from posttrain.learning.episodes.environments.base import (
    Act,
    Environment,
    EpisodeState,
    Situation,
)
from posttrain.learning.episodes.episode import End, Episode, start_seed, turn_seed

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem

Speak = Callable[[EpisodeState, str], str]
"""What a role says: of the state in which it is asked, and its name."""


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
    situation = environment.start(problem, start_seed(seed, problem.id))
    situations, log = [situation], list[tuple[Act, ...]]()
    hear = heard or (lambda _: None)
    try:
        hear(situation)
        while situation.asks and len(log) < most_turns:
            state = situation.state
            acts = tuple(Act(ask.role, speak(state, ask.role)) for ask in situation.asks)
            situation = environment.step(state, acts, turn_seed(seed, problem.id, len(log)))
            log.append(acts)
            situations.append(situation)
            hear(situation)
    finally:
        environment.close(situation.state)
    end: End = "failed" if situation.failed else "turns" if situation.asks else "over"
    return Episode(problem.id, (), tuple(situations), tuple(log), end)
