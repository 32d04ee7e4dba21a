"""Play episodes: a policy and an environment by turns, many episodes side by side.

What a role draws depends on the seed, the episode, the turn and its policy alone: an episode that
is played by itself has the draws that it has in company. What the policy of a group draws first is
what it would draw of the problem without any environment.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from posttrain.learning.episodes.append import appended
from posttrain.learning.episodes.environments.base import (
    Act,
    Ask,
    Environment,
    Said,
    Situation,
)
from posttrain.learning.episodes.episode import End, Episode, Segment
from posttrain.learning.rollouts.engines.base import (
    FinishReason,
    Prompt,
    RolloutEngine,
    Sample,
    SamplingParams,
)
from posttrain.learning.rollouts.limits import leaves_room
from posttrain.stage.errors import UserError
from posttrain.stage.seeds import purpose_seed

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from posttrain.data.schemas import Problem


class Role(NamedTuple):
    """Who plays a role."""

    engine: RolloutEngine
    """Draws what it says."""
    tokenizer: "PreTrainedTokenizerBase"
    """Of the engine's policy."""
    params: SamplingParams
    """How; `num_samples` is the size of a group, `max_tokens` the most of one turn."""


@dataclass
class _Game:
    """An episode that is being played."""

    problem: "Problem"
    prompt: Prompt
    index: int
    situations: list[Situation]
    segments: dict[str, Segment] = field(default_factory=dict)
    said: dict[str, Act] = field(default_factory=dict)
    """The last act of each role."""
    log: list[tuple[Act, ...]] = field(default_factory=list)
    end: End | None = None

    @property
    def id(self) -> str:
        return f"{self.prompt.id}/{self.index}"

    @property
    def turn(self) -> int:
        return len(self.log)

    @property
    def episode(self) -> Episode:
        assert self.end is not None
        kept = tuple(self.segments.values())
        return Episode(self.id, kept, tuple(self.situations), tuple(self.log), self.end)

    def read(self, ask: Ask, tokenizer: "PreTrainedTokenizerBase") -> None:
        """Put what a role is told behind what it has read and said."""
        before = self.segments.get(ask.role, Segment(ask.role))
        if bool(before.token_ids) != bool(ask.new):
            told = f"asked {ask.role} again and told it nothing"
            if ask.new:
                told = f"told {ask.role} {ask.new[0].text[:40]!r} at first"
            raise UserError(
                f"an environment {told}; let a role read the problem's prompt first, which needs no"
                " message, and one message at least before it speaks again"
            )
        new = self.prompt.token_ids
        if ask.new:
            new = appended(tokenizer, ask.new, ended=not self.said[ask.role].cut)
        self.segments[ask.role] = before.read(new)

    def say(self, role: str, sample: Sample | None) -> Act | None:
        """Put what a role drew behind what it has read; without room it says nothing."""
        if sample is None:
            # What it read last is of no use: nothing follows.
            self.segments[role] = self.segments[role].until_drawn()
            return None
        self.segments[role] = self.segments[role].drew(sample)
        cut = sample.finish_reason is FinishReason.LENGTH
        self.said[role] = Act(role, sample.text, cut=cut)
        return self.said[role]


def play(
    environment: Environment,
    problems: Sequence["Problem"],
    prompts: Sequence[Prompt],
    roles: Mapping[str, Role],
    *,
    seed: int,
    most_turns: int,
) -> list[list[Episode]]:
    """Play a group of episodes of every problem.

    Args:
        environment: What answers the roles.
        problems: What the episodes are about, ``[P]``.
        prompts: Their prompts as tokens, in the same order: what each role reads first.
        roles: Who plays each of the environment's roles, with equal sizes of a group.
        seed: All that happens depends on it, the problems and the policies.
        most_turns: An episode ends after so many.

    Returns:
        Episodes ``[P][G]``, in the order of the problems.

    Raises:
        UserError: The environment does what no environment may.

    """
    (size,) = {role.params.num_samples for role in roles.values()}
    games: list[_Game] = []
    with _closing(environment, games):
        for problem, prompt in zip(problems, prompts, strict=True):
            for index in range(size):
                first = _start(environment, problem, purpose_seed(seed, "start", prompt.id))
                games.append(_Game(problem, prompt, index, [first]))
                if first.failed:
                    read = prompt.token_ids
                    games[-1].segments = {name: Segment(name).read(read) for name in roles}
        while playing := [game for game in games if _goes_on(game, most_turns)]:
            _refuse_unknown(playing, roles, environment)
            acts: dict[str, dict[str, Act]] = {game.id: {} for game in playing}
            for name, role in roles.items():
                for game, act in _spoken(playing, name, role):
                    acts[game.id][name] = act
            _proceed(environment, playing, acts, seed)
    episodes = [game.episode for game in games]
    return [episodes[at : at + size] for at in range(0, len(episodes), size)]


@contextmanager
def _closing(environment: Environment, games: Sequence[_Game]) -> Iterator[None]:
    """Close every game once, whatever happens to the others."""
    with ExitStack() as stack:
        try:
            yield
        finally:
            for game in games:
                stack.callback(environment.close, game.situations[-1].state)


def _refuse_unknown(
    games: Sequence[_Game], roles: Mapping[str, Role], environment: Environment
) -> None:
    asked = {ask.role for game in games for ask in game.situations[-1].asks}
    if strangers := sorted(asked - roles.keys()):
        raise UserError(
            f"environment {environment.kind} asks {strangers[0]}, and there is only"
            f" {', '.join(roles)}; let it ask that"
        )


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

    """
    prompt, _, _ = episode.rpartition("/")
    situation = _start(environment, problem, purpose_seed(seed, "start", prompt))
    yield situation
    for turn, acts in enumerate(log):
        situation = environment.step(situation.state, acts, _seed_of(seed, episode, turn))
        yield situation


def _start(environment: Environment, problem: "Problem", seed: int) -> Situation:
    situation = environment.start(problem, seed)
    if not situation.asks and not situation.failed:
        raise UserError(
            f"environment {environment.kind}: `start` asked nobody; let it ask a role to speak"
        )
    return situation


def _goes_on(game: _Game, most_turns: int) -> bool:
    """Tell whether somebody is to speak, and note how the episode ended where nobody is."""
    if game.end is not None:
        return False
    last, said = game.situations[-1], game.log[-1] if game.log else ()
    if last.failed:
        game.end = "failed"
    elif not last.asks:
        game.end = "tokens" if any(act.cut for act in said) else "over"
    elif game.turn >= most_turns:
        game.end = "turns"
    return game.end is None


def _spoken(games: Sequence[_Game], name: str, role: Role) -> Iterator[tuple[_Game, Act]]:
    """What a role says in all games that ask it and have room for it."""
    asked = [(game, ask) for game in games for ask in game.situations[-1].asks if ask.role == name]
    for game, ask in asked:
        game.read(ask, role.tokenizer)
    # All episodes of a group begin alike: they are samples of one prompt.
    groups = {game.prompt.id: game.prompt for game, _ in asked if not game.turn}
    alone = [
        Prompt(f"{game.id}@{game.turn}", game.segments[name].token_ids)
        for game, _ in asked
        if game.turn
    ]
    drawn = _drawn(role, [*groups.values()], role.params)
    drawn |= _drawn(role, alone, replace(role.params, num_samples=1))
    for game, _ in asked:
        place = (f"{game.id}@{game.turn}", 0) if game.turn else (game.prompt.id, game.index)
        if (act := game.say(name, drawn.get(place))) is not None:
            yield game, act


def _drawn(
    role: Role, prompts: Sequence[Prompt], params: SamplingParams
) -> dict[tuple[str, int], Sample]:
    """Samples by prompt and index, of the prompts that leave room for one."""
    fitting = [each for each in prompts if leaves_room(each, role.engine.context_length)]
    samples = role.engine.sample(fitting, params) if fitting else []
    return {(sample.prompt_id, sample.index): sample for sample in samples}


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
        Said(game.situations[-1].state, game.log[-1], _seed_of(seed, game.id, game.turn - 1))
        for game in going
    ]
    for game, situation in zip(going, environment.step_all(turns), strict=True):
        game.situations.append(situation)


def _seed_of(seed: int, episode: str, turn: int) -> int:
    return purpose_seed(seed, "turn", episode, turn)
