"""Episodes that a world's script plays, as solutions of the problems that they are of."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any, Protocol, cast

from posttrain.data.contexts import PromptContext, turn_of
from posttrain.data.plans import plan_of, told_behind
from posttrain.data.teachers.base import Solution
from posttrain.stage.slots import Part

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem

POLICY_ROLE = "policy"
"""As the environments call the role that is trained."""


class EpisodeOfScript(Protocol):
    """What is looked at of an episode that a script played."""

    @property
    def said(self) -> Sequence[tuple[str, str]]:
        """Who said what in the policy's eyes; it is `assistant`."""

    @property
    def score(self) -> float:
        """What it earned."""

    @property
    def read(self) -> tuple[str, ...]:
        """Ids of the rows that were shown in it."""

    @property
    def others(self) -> Mapping[str, Sequence[tuple[str, str]]]:
        """The same in the eyes of each other role."""


class Poses(Protocol):
    """What is asked of a world, whose room is above this one."""

    kind: str

    def posed(self, draw: Random) -> tuple[str, Mapping[str, Any]]:
        """Give a prompt, and what there is."""

    def has_script(self) -> bool:
        """Tell whether it can play for traces."""

    def roles_asked(self) -> frozenset[str]:
        """Name its roles beside the policy."""

    def declared_role(self, name: str) -> str | None:
        """Say which of its roles goes by a name."""

    def demonstrate_all(
        self, problems: "Sequence[Problem]", draws: Sequence[Random], *, error_rate: float
    ) -> Sequence[EpisodeOfScript]:
        """Play an episode of each."""


def refuse_unplayable(world: Part, roles: Sequence[str], *, scripted: bool) -> None:
    """Refuse a world that cannot give what is wanted of it.

    Args:
        world: An environment.
        roles: Whose turns are to become solutions.
        scripted: Whether its script is to play.

    Raises:
        ValueError: It poses no problems, has no such role, or no script.

    """
    if not hasattr(world, "pose"):
        raise ValueError(
            f"environment '{world.kind}' poses no problems of its own; take one that"
            " `posttrain env list` shows as a world, or bring problems and let"
            " rl.producer name the environment"
        )
    poses = cast("Poses", world)
    known = (POLICY_ROLE, *sorted(poses.roles_asked()))
    for role in roles:
        if poses.declared_role(role) is None:
            raise ValueError(
                f"traced: world '{world.kind}' has no role {role}; it has {', '.join(known)}"
            )
    if scripted and not poses.has_script():
        raise ValueError(
            f"no script plays world '{world.kind}' with these settings, so there are no"
            " traces of it; set demonstrations: 0"
        )


def demonstrated(
    world: Poses,
    problems: "Sequence[Problem]",
    draws: Sequence[Random],
    *,
    number: int,
    error_rate: float,
    roles: Sequence[str],
) -> Iterator[Solution]:
    """Let the script play problems.

    Args:
        world: That posed them.
        problems: Each is played.
        draws: Where the chance in each comes from.
        number: Episodes of each.
        error_rate: Probability that a move is a random one.
        roles: Whose turns become solutions.

    Yields:
        Problem by problem the episodes of each, in the eyes of each role that was asked in it.

    """
    rounds = [world.demonstrate_all(problems, draws, error_rate=error_rate) for _ in range(number)]
    for problem, *episodes in zip(problems, *rounds, strict=True):
        for played in episodes:
            views = {POLICY_ROLE: played.said, **played.others}
            for role in roles:
                if role in views:
                    yield _solution(problem, views[role], f"script:{error_rate:g}", played)


def guided(
    world: Poses, problems: "Sequence[Problem]", draws: Sequence[Random]
) -> Iterator[Solution]:
    """Let the script play problems without an error, as if it did what it is told.

    Args:
        world: That posed them.
        problems: Each is played.
        draws: Where the chance in each comes from.

    Yields:
        An episode of each whose first moves stand behind its prompt as a plan; none of those that
        have a single move.

    """
    played = world.demonstrate_all(problems, draws, error_rate=0.0) if problems else []
    for problem, episode in zip(problems, played, strict=True):
        if plan := plan_of(episode.said):
            context = PromptContext.read(problem.context)
            told = context.model_copy(update={"after": told_behind(context.after, plan)})
            asked = replace(problem, context=told.written(), parents=(problem.id,))
            yield _solution(asked, episode.said, "script:guided", episode)


def _solution(
    problem: "Problem", said: Sequence[tuple[str, str]], who: str, played: EpisodeOfScript
) -> Solution:
    """An episode in the eyes of a role, which may have read something in place of the prompt."""
    (author, first), *after = said
    if author != "assistant":
        problem, said = replace(problem, prompt=first, parents=(problem.id,)), after
    *between, (_, last) = said
    turns = tuple(turn_of(author, text) for author, text in between)
    return Solution(problem, last, who, between=turns, read=played.read, score=played.score)
