"""Play episodes: roles and an environment by turns, many episodes side by side.

What a role says depends on the seed, the episode, the turn and who plays it alone: an episode that
is played by itself has the draws that it has in company. What the policy of a group draws first is
what it would draw of the problem without any environment.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from random import Random
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from posttrain.learning.episodes.asked import Cue, Reply, Speaker
from posttrain.learning.episodes.branches.base import Forks, Standing
from posttrain.learning.episodes.config import role_of
from posttrain.learning.episodes.contract import answered, begun
from posttrain.learning.episodes.drawing import Role
from posttrain.learning.episodes.environments.base import (
    POLICY,
    Act,
    Ask,
    Environment,
    Said,
    Situation,
    Told,
)
from posttrain.learning.episodes.episode import (
    End,
    Episode,
    Segment,
    answered_as,
    start_seed,
    turn_seed,
)
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


@dataclass
class _Game:
    """An episode that is being played."""

    problem: "Problem"
    prompt: Prompt
    index: int
    situations: list[Situation]
    segments: dict[str, tuple[Segment, ...]] = field(default_factory=dict)
    said: dict[str, Act] = field(default_factory=dict)
    """The last act of each role."""
    heard: dict[str, tuple[Told, ...]] = field(default_factory=dict)
    """What each role has been told and has said, in order."""
    log: list[tuple[Act, ...]] = field(default_factory=list)
    end: End | None = None
    late: bool = False
    """Whether it began after others of its group."""
    origin: str = ""
    """Of a branch, the rest of its id: where it branched off."""
    shared: Mapping[str, int] = field(default_factory=dict)
    """Of a branch, how many tokens each role had drawn then."""
    entropies: tuple[tuple[float, ...], ...] = ()
    """At the first tokens of the policy's turns, where somebody asks for them."""

    @property
    def id(self) -> str:
        return f"{self.prompt.id}/{self.index}{self.origin}"

    @property
    def turn(self) -> int:
        return len(self.log)

    @property
    def policy_spoke(self) -> bool:
        return bool(self.log) and any(act.role == POLICY for act in self.log[-1])

    @property
    def episode(self) -> Episode:
        assert self.end is not None
        # A policy that never came to speak has its prompt, and nothing that could be judged.
        self.segments.setdefault(POLICY, (Segment(POLICY).read(self.prompt.token_ids),))
        kept = tuple(segment for each in self.segments.values() for segment in each)
        situations, log = tuple(self.situations), tuple(self.log)
        return Episode(self.id, kept, situations, log, self.end, self.shared)

    def asked(self, ask: Ask) -> Cue:
        """Everything that whoever plays a role may go by."""
        last, heard = self.said.get(ask.role), self.heard.get(ask.role)
        first = ask.new or (Told("user", self.problem.prompt),)
        return Cue(
            episode=self.id,
            index=self.index,
            turn=self.turn,
            problem=self.problem,
            prompt=self.prompt,
            state=self.situations[-1].state,
            ask=ask,
            before=self.segments.get(ask.role, ()),
            heard=first if heard is None else (*heard, *ask.new),
            cut=last is not None and last.cut,
            late=self.late,
        )

    def branch(self, index: int) -> "_Game":
        """Another episode that goes on from here, of which all was said that was said in this."""
        drawn = {
            role: sum(len(segment.logprobs) for segment in segments)
            for role, segments in self.segments.items()
        }
        return replace(
            self,
            index=index,
            situations=[*self.situations],
            segments={**self.segments},
            said={**self.said},
            heard={**self.heard},
            log=[*self.log],
            origin=f"<{self.index}@{self.turn}{self.origin}",
            shared=drawn,
        )

    def take(self, asked: Cue, reply: Reply) -> None:
        """Keep what a role said, and what it has read and drawn by now."""
        role = asked.ask.role
        if reply.segments:
            self.segments[role] = reply.segments
        if reply.act is not None:
            self.said[role] = reply.act
            self.heard[role] = (*asked.heard, Told("assistant", reply.act.text))


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
    size = policy.params.num_samples
    forks = policy.forks
    at_once = size if forks is None else forks.branching.begins(size)
    limits, began = EpisodeLimits(most_turns, most_seconds), monotonic()
    games: list[_Game] = []
    with _closing(environment, games):
        for problem, prompt in zip(problems, prompts, strict=True):
            for index in range(at_once):
                games.append(_begun(environment, problem, prompt, index, seed))
        while playing := [game for game in games if _goes_on(game, limits, monotonic() - began)]:
            _round(environment, playing, roles, seed)
            if forks is not None and not limits.over(monotonic() - began):
                games += _grown(environment, games, forks, limits, size=size, seed=seed)
    groups: dict[str, list[Episode]] = {prompt.id: [] for prompt in prompts}
    for game in games:
        groups[game.prompt.id].append(game.episode)
    return [groups[prompt.id] for prompt in prompts]


def _begun(
    environment: Environment, problem: "Problem", prompt: Prompt, index: int, seed: int
) -> _Game:
    first = begun(environment, problem, start_seed(seed, prompt.id))
    return _Game(problem, prompt, index, [first])


def _grown(
    environment: Environment,
    games: Sequence[_Game],
    forks: Forks,
    limits: EpisodeLimits,
    *,
    size: int,
    seed: int,
) -> list[_Game]:
    """Branches behind a round, and one more episode of each problem that nobody goes on with."""
    groups: dict[str, list[_Game]] = {}
    for game in games:
        groups.setdefault(game.prompt.id, []).append(game)
    fresh: list[_Game] = []
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


def _measure(games: Sequence[_Game], forks: Forks) -> None:
    """Note how unsure the policy was in its last turn."""
    tokens = forks.branching.tokens
    if not tokens or not games:
        return
    found = forks.entropies([game.segments[POLICY][-1] for game in games], tokens)
    for game, entropies in zip(games, found, strict=True):
        game.entropies = (*game.entropies, entropies)


def _round(
    environment: Environment, games: Sequence[_Game], roles: Mapping[str, Speaker], seed: int
) -> None:
    """Let everybody speak who is asked, and the environment answer."""
    names = dict.fromkeys(ask.role for game in games for ask in game.situations[-1].asks)
    _refuse_undeclared(environment, names)
    replies: dict[str, list[tuple[Cue, Reply]]] = {game.id: [] for game in games}
    for name in names:
        asks = [(game, ask) for game in games for ask in game.situations[-1].asks]
        cues = [game.asked(ask) for game, ask in asks if ask.role == name]
        speaker = roles.get(name) or roles.get(name.partition(":")[0]) or Scripted(tuple(roles))
        said = speaker.reply(cues, environment, seed=seed)
        for cue, reply in zip(cues, said, strict=True):
            replies[cue.episode].append((cue, reply))
    acts: dict[str, dict[str, Act]] = {game.id: {} for game in games}
    for game in games:
        silent = [each for each in replies[game.id] if each[1].act is None]
        # Where one had no room to speak the turn has not been: no row has what others said in it.
        for cue, reply in silent or replies[game.id]:
            game.take(cue, reply)
            if reply.act is not None:
                acts[game.id][cue.ask.role] = reply.act
    _proceed(environment, games, acts, seed)


@contextmanager
def _closing(environment: Environment, games: Sequence[_Game]) -> Iterator[None]:
    """Close every game once, whatever happens to the others."""
    with ExitStack() as stack:
        try:
            yield
        finally:
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


def _refuse_undeclared(environment: Environment, asked: Iterable[str]) -> None:
    """Refuse roles that recipes could not name: a player bound to them would be refused."""
    known = (POLICY, *environment.roles_asked())
    for name in asked:
        if role_of(name, known) is None:
            raise UserError(
                f"environment {environment.kind} asks the role {name}, which it does not declare;"
                " let its ROLES name it"
            )


def _goes_on(game: _Game, limits: EpisodeLimits, seconds: float) -> bool:
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


def _proceed(
    environment: Environment,
    games: Sequence[_Game],
    said: Mapping[str, Mapping[str, Act]],
    seed: int,
) -> None:
    """Let the environment answer all games in which everybody who was asked has spoken."""
    for game in games:
        asks, acts = game.situations[-1].asks, said[game.id]
        if len(acts) < len(asks):
            # Somebody had no room to speak: there is nothing to answer.
            game.end = "tokens"
        else:
            game.log.append(tuple(acts[ask.role] for ask in asks))
    going = [game for game in games if game.end is None]
    turns = [
        Said(game.situations[-1].state, game.log[-1], turn_seed(seed, game.id, game.turn - 1))
        for game in going
    ]
    found = answered(environment, turns, [game.situations for game in going])
    for game, situation in zip(going, found, strict=True):
        game.situations.append(situation)
