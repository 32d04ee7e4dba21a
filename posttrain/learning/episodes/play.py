"""Play episodes: roles and an environment by turns, many episodes side by side.

What a role says depends on the seed, the episode, the turn and who plays it alone: an episode that
is played by itself has the draws that it has in company. What the policy of a group draws first is
what it would draw of the problem without any environment.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from random import Random
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from posttrain.learning.episodes.asked import Cue, Reply, Speaker
from posttrain.learning.episodes.branches.base import Forks, Standing
from posttrain.learning.episodes.contract import answered, begun
from posttrain.learning.episodes.drawing import Role
from posttrain.learning.episodes.environments.base import (
    POLICY,
    Act,
    Environment,
    Said,
    Situation,
)
from posttrain.learning.episodes.episode import Episode, answered_as, start_seed, turn_seed
from posttrain.learning.episodes.game import Game
from posttrain.learning.episodes.players.script import Scripted
from posttrain.learning.rollouts.engines.base import Prompt
from posttrain.stage.errors import UserError
from posttrain.stage.seeds import purpose_seed

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem

__all__ = ["Role", "play", "retrace"]


class EpisodeLimits(NamedTuple):
    """What ends an episode that does not end by itself."""

    turns: int
    """Turns of the episode."""
    seconds: float | None = None
    """Wall-clock of all episodes that are played together, after which those that are not over end
    as they stand and are not judged: a circuit breaker, whose outcome is stored."""

    def over(self, seconds: float) -> bool:
        """Tell whether the deadline has gone by."""
        return self.seconds is not None and seconds > self.seconds


def play(
    environment: Environment,
    problems: Sequence["Problem"],
    prompts: Sequence[Prompt],
    roles: Mapping[str, Speaker],
    *,
    seed: int,
    most_turns: int,
    most_seconds: float | None = None,
) -> list[list[Episode]]:
    """Play a group of episodes of every problem.

    Args:
        environment: What answers the roles.
        problems: What the episodes are about, ``[P]``.
        prompts: Their prompts as tokens, in the same order: what each role reads first.
        roles: Who plays each role, `policy` at least, by name or by what stands before a colon in
            it: `solver` plays `solver:1` and `solver:2`. The size of a group is that of the policy,
            and so is where episodes of a group begin inside another one.
        seed: All that happens depends on it, the problems and who plays.
        most_turns: An episode ends after so many.
        most_seconds: Those that are not over by then end unjudged; None waits for all.

    Returns:
        Episodes ``[P][G]``, in the order of the problems.

    Raises:
        UserError: The environment does what no environment may.

    """
    policy = roles[POLICY]
    assert isinstance(policy, Role)
    size, forks = policy.params.num_samples, policy.forks
    at_once = size if forks is None else forks.branching.begins(size)
    limits, began = EpisodeLimits(most_turns, most_seconds), monotonic()
    games: list[Game] = []
    with _closing(environment, games):
        for problem, prompt in zip(problems, prompts, strict=True):
            games += begin_games(environment, problem, prompt, size=at_once, seed=seed)
        while now := still_playing(games, limits, seconds=monotonic() - began):
            play_round(environment, now, roles)
            if forks is not None and not limits.over(monotonic() - began):
                games += _grown(environment, games, forks, limits, size=size, seed=seed)
    groups: dict[str, list[Episode]] = {prompt.id: [] for prompt in prompts}
    for game in games:
        groups[game.prompt.id].append(game.episode)
    return [groups[prompt.id] for prompt in prompts]


def begin_games(
    environment: Environment, problem: "Problem", prompt: Prompt, *, size: int, seed: int
) -> Iterator[Game]:
    """Begin the episodes of a group.

    Args:
        environment: What answers the roles.
        problem: What they are about.
        prompt: Its prompt as tokens.
        size: How many.
        seed: Of the round of sampling: all chance in the episodes is by it.

    Yields:
        Each of them, before anybody has spoken; whoever has it is to close its environment.

    Raises:
        UserError: The environment does what no environment may.

    """
    for index in range(size):
        yield _begun(environment, problem, prompt, index, seed)


def still_playing(
    games: Sequence[Game], limits: EpisodeLimits, *, seconds: float = 0.0
) -> list[Game]:
    """Return the episodes in which somebody is to speak; those in which nobody is any more end.

    Args:
        games: Any episodes.
        limits: What ends an episode that does not end by itself.
        seconds: For which they have been played.

    """
    return [game for game in games if _goes_on(game, limits, seconds)]


def play_round(
    environment: Environment, games: Sequence[Game], roles: Mapping[str, Speaker]
) -> None:
    """Let everybody speak once who is asked in some episodes, and the environment answer.

    Args:
        environment: What answers the roles.
        games: The episodes, as `still_playing` gives them; no two have one id.
        roles: Who plays each role, as `play` is given them.

    Raises:
        UserError: The environment does what no environment may.

    """
    names = dict.fromkeys(ask.role for game in games for ask in game.waiting)
    replies: dict[str, list[tuple[Cue, Reply]]] = {game.id: [] for game in games}
    for name in names:
        speaker = roles.get(name) or roles.get(name.partition(":")[0]) or Scripted(tuple(roles))
        for seed in dict.fromkeys(game.seed for game in games):
            asks = [(g, ask) for g in games if g.seed == seed for ask in g.waiting]
            cues = [game.asked(ask) for game, ask in asks if ask.role == name]
            said = speaker.reply(cues, environment, seed=seed) if cues else []
            for cue, reply in zip(cues, said, strict=True):
                replies[cue.episode].append((cue, reply))
    for game in games:
        silent = [each for each in replies[game.id] if each[1].silent]
        # Where one had no room to speak the turn has not been: no row has what others said in it.
        for cue, reply in silent or replies[game.id]:
            game.take(cue, reply)
        if silent:
            game.end = "tokens"
    _answer(environment, [game for game in games if game.end is None and not game.waiting])


def _begun(
    environment: Environment, problem: "Problem", prompt: Prompt, index: int, seed: int
) -> Game:
    first = begun(environment, problem, start_seed(seed, prompt.id))
    return Game(problem, prompt, index, seed, [first])


def _grown(
    environment: Environment,
    games: Sequence[Game],
    forks: Forks,
    limits: EpisodeLimits,
    *,
    size: int,
    seed: int,
) -> list[Game]:
    """Branches behind a round, and one more episode of each problem that nobody goes on with."""
    groups: dict[str, list[Game]] = {}
    for game in games:
        groups.setdefault(game.prompt.id, []).append(game)
    fresh: list[Game] = []
    growing = [group for group in groups.values() if len(group) < size]
    going = [[game for game in group if _goes_on(game, limits, 0.0)] for group in growing]
    spoke = [[game for game in each if game.policy_spoke] for each in going]
    _measure([game for each in spoke for game in each], forks)
    for group, goes_on, may in zip(growing, going, spoke, strict=True):
        problem, prompt, place = group[0].problem, group[0].prompt, len(group)
        if not goes_on:
            fresh.append(replace(_begun(environment, problem, prompt, place, seed), late=True))
            continue
        standing = [Standing(game.index, game.turn, game.entropies) for game in may]
        said = sum(game.turn for game in group)
        draw = Random(purpose_seed(seed, "branch", prompt.id, place, said))
        chosen = forks.branching.branches(standing, size - place, draw)[: size - place]
        fresh += [may[each].branch(at) for at, each in enumerate(chosen, start=place)]
    return fresh


def _measure(games: Sequence[Game], forks: Forks) -> None:
    """Note how unsure the policy was in its last turn."""
    tokens = forks.branching.tokens
    if not tokens or not games:
        return
    found = forks.entropies([game.segments[POLICY][-1] for game in games], tokens)
    for game, entropies in zip(games, found, strict=True):
        game.entropies = (*game.entropies, entropies)


@contextmanager
def _closing(environment: Environment, games: Sequence[Game]) -> Iterator[None]:
    """Close every game once, whatever happens to the others."""
    try:
        yield
    finally:
        close_games(environment, games)


def close_games(environment: Environment, games: Sequence[Game]) -> None:
    """Free what the environment holds open for some episodes.

    Args:
        environment: What they were played in.
        games: Whose last states are to be closed: each once, whatever happens to the others.

    """
    with ExitStack() as stack:
        for game in games:
            stack.callback(environment.close, game.situations[-1].state)


def retrace(
    environment: Environment,
    problem: "Problem",
    episode: str,
    log: Sequence[Sequence[Act]],
    *,
    seed: int,
) -> Iterator[Situation]:
    """Stand at every turn of an episode again, from what was said in it.

    Args:
        environment: One that is `EXACT`.
        problem: What the episode is about.
        episode: Its id.
        log: What was said, turn by turn.
        seed: That it was played with.

    Yields:
        The first situation, and one after every turn.

    Raises:
        UserError: The environment is not `EXACT`.

    """
    if not environment.EXACT:
        raise UserError(
            f"environment {environment.kind}: a clock or a network has a say in what it answers,"
            " so what was said does not lead to the same situations again; read the episode from"
            " its rows"
        )
    prompt, _, _ = episode.rpartition("/")
    situation = begun(environment, problem, start_seed(seed, prompt))
    yield situation
    for turn, acts in enumerate(log):
        own = turn_seed(seed, answered_as(episode, turn), turn)
        situation = environment.step(situation.state, acts, own)
        yield situation


def _goes_on(game: Game, limits: EpisodeLimits, seconds: float) -> bool:
    """Tell whether somebody is to speak, and note how the episode ended where nobody is."""
    if game.end is not None:
        return False
    last, said = game.situations[-1], game.log[-1] if game.log else ()
    if last.failed:
        game.end = "failed"
    elif not last.asks:
        game.end = "tokens" if any(act.cut for act in said) else "over"
    elif game.turn >= limits.turns:
        game.end = "turns"
    elif game.turn and limits.over(seconds):
        game.end = "time"
    return game.end is None


def _answer(environment: Environment, games: Sequence[Game]) -> None:
    """Let the environment answer in games in which everybody who was asked has spoken."""
    turns = []
    for game in games:
        state, turn = game.situations[-1].state, game.turn
        turns.append(Said(state, game.close_turn(), turn_seed(game.seed, game.id, turn)))
    found = answered(environment, turns, [game.situations for game in games])
    for game, situation in zip(games, found, strict=True):
        game.situations.append(situation)
