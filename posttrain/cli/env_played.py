"""An environment on the terminal: its settings, and episodes that are played or watched there."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, NamedTuple

import click
from rich.console import Console
from rich.markup import escape

from posttrain.cli.options import plain_table
from posttrain.stage.errors import UserError
from posttrain.stage.escapes import printable
from posttrain.stage.formatting import counted

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem
    from posttrain.learning.episodes.environments.base import (
        Ask,
        Environment,
        EpisodeState,
        Situation,
    )
    from posttrain.learning.episodes.episode import Episode
    from posttrain.learning.episodes.posed import By
    from posttrain.learning.episodes.worlds.base import World
    from posttrain.learning.rollouts.engines.base import PlayedSample

INEXACT = "not exact: what it answers may depend on a clock or a network"
"""Of an environment whose episodes are replayed from rows, and not played again."""
_MOST_TURNS = 1000
_WIDTH = 18


class Spoken(NamedTuple):
    """Something that was said in an episode."""

    who: str
    text: str
    remark: str = ""
    """What it earned, and where it was said."""


def print_settings(environment: "Environment") -> None:
    """Print what it is, where it is from, and each setting with its value and meaning.

    Those that make problems larger are marked; a value that is not the default stands with it.
    """
    part = type(environment)
    paragraphs = [" ".join(each.split()) for each in (part.__doc__ or "").split("\n\n")]
    console = Console(highlight=False)
    console.print(f"[bold]{environment.kind}[/]  {escape(' '.join(paragraphs))}")
    if part.SOURCE:
        console.print(f"[dim]{escape(' '.join(part.SOURCE.split()))}[/]")
    if not part.EXACT:
        console.print(f"[dim]{INEXACT}[/]")
    if roles := sorted(environment.roles_asked()):
        console.print(f"roles beside the policy: {escape(', '.join(roles))}")
    table = plain_table("setting", "value", "what", unbroken=("setting",))
    table.padding = (0, 2, 0, 0)
    texts, sizes = part.texts_of_fields(), getattr(part, "SIZES", ())
    for name, field in part.model_fields.items():
        if name == "kind":
            continue
        value, usual = getattr(environment, name), field.get_default(call_default_factory=True)
        told = str(value) if value == usual else f"{value} (default {usual})"
        mark = " [bold]*[/]" if name in sizes else ""
        text = " ".join(texts.get(name, "").split())
        table.add_row(f"{name}{mark}", escape(told), escape(text))
    if table.rows:
        console.print()
        console.print(table)
        if sizes:
            console.print("[dim]* makes its problems larger or smaller[/]")


def print_script(world: "World", *, by: "By | str", seed: int, role: str = "policy") -> None:
    """Print an episode that a world's script or random player plays, all roles and their keys.

    Args:
        world: With its settings.
        by: Who plays the role.
        seed: Of the problem and of the moves.
        role: Whose part; the script plays all others.

    """
    from posttrain.learning.episodes.posed import posed_problem, speaking
    from posttrain.learning.episodes.script import play_script

    problem = posed_problem(world, seed)
    player: By = "random" if by == "random" else "script"
    speak = speaking(world, player, Random(seed), role=role)
    episode = play_script(world, problem, speak, seed=seed, most_turns=_MOST_TURNS)
    _refuse_stranger(role, episode)
    others = (
        f" in the role {role}, else by script" if world.roles_asked() and by != "script" else ""
    )
    click.echo(f"{world.kind}, seed {seed}, played by {by}{others}\n")
    _print_lines([Spoken("", problem.prompt), *_lines(episode)])
    click.echo(_ended(episode, role, len(episode.log)))


def play_lines(world: "World", file: Path | None, *, seed: int, role: str) -> None:
    """Let a person play, or the lines of a file.

    Args:
        world: With its settings.
        file: Of lines, one a turn; None reads what is typed.
        seed: Of the problem, and of the moves of other roles.
        role: Whose part.

    """
    from posttrain.learning.episodes.posed import posed_problem, speaking
    from posttrain.learning.episodes.script import play_script

    problem = posed_problem(world, seed)
    others = speaking(world, "script", Random(seed), role=role)
    turns = _turns(_typed() if file is None else _lines_of(file))
    # What comes through a pipe stands nowhere yet.
    unseen = file is not None or not sys.stdin.isatty()
    seat = _Seat(problem, role, turns, others, echo=unseen)
    if world.declared_role(role) is None:
        asked = ", ".join(["policy", *sorted(world.roles_asked())])
        raise UserError(f"nobody asks the role '{role}' here; there are {asked}")
    click.echo(f"{world.kind}, seed {seed}: you are {role}; Ctrl-D ends it\n")
    try:
        episode = play_script(
            world, problem, seat.speak, seed=seed, most_turns=_MOST_TURNS, heard=seat.hear
        )
    except EOFError:
        after, score = counted(seat.turns, "turn"), sum(seat.earned)
        click.echo(f"\nNothing more was said: it stands after {after}, score {score:.2f} so far")
        return
    _refuse_stranger(role, episode)
    click.echo(_ended(episode, role, seat.turns))


class _Seat:
    """A role that is played on the terminal: shows what it reads, asks for what it says."""

    def __init__(
        self,
        problem: "Problem",
        role: str,
        turns: Iterator[str],
        others: "Callable[[EpisodeState, str], str]",
        *,
        echo: bool,
    ) -> None:
        self._prompt = problem.prompt
        self._role, self._lines, self._others, self._echo = role, turns, others, echo
        self.earned: list[float] = []
        self.turns = 0
        self._asked = False

    def hear(self, situation: "Situation") -> None:
        """Show what the role has earned and what it is told."""
        if paid := situation.earned.get(self._role, 0.0):
            self.earned.append(paid)
            click.echo(f"{'':{_WIDTH}}earned {paid:.2f}")
        for ask in situation.asks:
            if ask.role == self._role:
                self._read(ask)

    def _read(self, ask: "Ask") -> None:
        told = [Spoken(each.author, each.text) for each in ask.new]
        if not self._asked:
            # The first that it reads is the problem's prompt, or what stands in its place.
            told = told or [Spoken("", self._prompt)]
            self._asked = True
        _print_lines(told)

    def speak(self, state: "EpisodeState", role: str) -> str:
        """Take the next turn; the script speaks for everybody else."""
        if role != self._role:
            return self._others(state, role)
        try:
            said = next(self._lines)
        except StopIteration:
            raise EOFError from None
        self.turns += 1
        if self._echo:
            _print_lines([Spoken(role, said)])
        return said


def print_policy(world: "World", path: Path, *, seed: int, temperature: float) -> None:
    """Print an episode that a checkpoint plays, as it reads it.

    Args:
        world: With its settings.
        path: The checkpoint's folder.
        seed: Of the problem and of the draws.
        temperature: Of the draws.

    """
    if not (path / "config.json").is_file():
        # Before what loading one imports.
        raise UserError(f"{path}: there is no such checkpoint; name a folder with a config.json")
    from posttrain.learning.episodes.posed import posed_problem
    from posttrain.learning.episodes.sampling import EpisodeSamplingConfig, open_playing
    from posttrain.learning.models.load import load_policy
    from posttrain.learning.rollouts.limits import tokens_for
    from posttrain.learning.rollouts.scoring import make_prompts

    problem = posed_problem(world, seed)
    policy = load_policy(path)
    config = EpisodeSamplingConfig(
        environment=world, most_turns=_MOST_TURNS, temperature=temperature, num_samples=1
    )
    limit = tokens_for("auto", policy.model, note=lambda said: click.echo(said, err=True))
    prompts = make_prompts(policy.tokenizer, [problem])
    with open_playing(config, policy, [problem]) as engine:
        if len(prompts[0].token_ids) >= engine.context_length:
            raise UserError(
                f"the prompt has {len(prompts[0].token_ids)} tokens, but the context of {path} is"
                f" {engine.context_length}; make the world smaller with --set"
            )
        (sample,) = engine.sample(prompts, config.params(seed, max_tokens=limit))
    click.echo(f"{world.kind}, seed {seed}, played by {path} at temperature {temperature:g}\n")
    if sample.played is None:
        _print_lines([Spoken("", problem.prompt), Spoken("policy", sample.text)])
        click.echo(f"ended ({sample.finish_reason.value}) after 1 turn")
        return
    _print_lines([Spoken("", problem.prompt), *_played_lines(sample.played)])
    played = sample.played
    click.echo(_ending(played.end, played.earned, len(played.earned), played.facts))


def _played_lines(played: "PlayedSample") -> Iterator[Spoken]:
    earned, keys = iter(played.earned), iter(played.keys)
    for author, text in played.said:
        if author == "assistant":
            yield Spoken("policy", text, _remark(next(earned, 0.0), next(keys, "")))
        else:
            yield Spoken(author, text)


def _lines(episode: "Episode") -> Iterator[Spoken]:
    """All that everybody said and was told, in order; with several roles, whom it was told."""
    roles = {act.role for acts in episode.log for act in acts}
    situations = episode.situations
    for turn, situation in enumerate(situations):
        for ask in situation.asks:
            whom = f" to {ask.role}" if len(roles) > 1 else ""
            yield from (Spoken(f"{told.author}{whom}", told.text) for told in ask.new)
        for act in episode.log[turn] if turn < len(episode.log) else ():
            paid = situations[turn + 1].earned.get(act.role, 0.0)
            yield Spoken(act.role, act.text, _remark(paid, situation.key))


def _remark(earned: float, key: str) -> str:
    parts = [f"earned {earned:.2f}" if earned else "", f"at {key}" if key else ""]
    return ", ".join(part for part in parts if part)


def _print_lines(lines: "Sequence[Spoken]") -> None:
    """Print each with who said it; further lines of a text are set in."""
    for who, text, remark in lines:
        first, *others = printable(text, kept="\n").split("\n")
        behind = click.style(f"   ({printable(remark)})", dim=True) if remark else ""
        name = click.style(f"{who:<{_WIDTH - 1}} ", bold=bool(who) and not who.startswith("user"))
        click.echo(f"{name}{first}{behind}")
        for line in others:
            click.echo(f"{'':{_WIDTH}}{line}")


def _ended(episode: "Episode", role: str, turns: int) -> str:
    """How an episode ended for a role, in a sentence."""
    return _ending(episode.end, episode.earned(role), turns, episode.facts(), role)


def _ending(
    end: str,
    earned: "Sequence[float]",
    turns: int,
    facts: Mapping[str, float],
    role: str = "policy",
) -> str:
    score, whose = sum(earned), "" if role == "policy" else f" of {role}"
    counts = ", ".join(f"{name} {value:g}" for name, value in facts.items() if value)
    solved = " (solved)" if score > 1 - 1e-9 else ""
    words = {
        "over": "over",
        "turns": "not over, and left",
        "tokens": "ended without room for more tokens",
        "time": "ended at the deadline",
        "failed": "the environment broke",
    }
    said = f"\n{words[end]} after {counted(turns, 'turn')}: score{whose} {score:.2f}{solved}"
    return f"{said}; {counts}" if counts else said


def _refuse_stranger(role: str, episode: "Episode") -> None:
    """Refuse a role that the world never asks."""
    asked = list(
        dict.fromkeys(ask.role for situation in episode.situations for ask in situation.asks)
    )
    if role not in asked:
        raise UserError(f"nobody asks the role '{role}' here; there are {', '.join(asked)}")


def _typed() -> Iterator[str]:
    """The lines that a person types, until the input ends."""
    while True:
        try:
            yield input("> " if sys.stdin.isatty() else "")
        except EOFError:
            return


def _lines_of(file: Path) -> Iterator[str]:
    """The lines of a file, which is read at once."""
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot read {file}: {error.strerror}; name a file of lines") from None
    except UnicodeDecodeError:
        raise UserError(f"{file} is no text in UTF-8; write one turn a line") from None
    return iter(text.splitlines())


def _turns(lines: Iterator[str]) -> Iterator[str]:
    """Join lines that end with a backslash with the next."""
    open_lines: list[str] = []
    for line in lines:
        if line.endswith("\\"):
            open_lines.append(line[:-1])
            continue
        yield "\n".join([*open_lines, line])
        open_lines = []
    if open_lines:
        yield "\n".join(open_lines)
