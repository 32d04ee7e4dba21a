"""Problems that a world poses, with episodes that a script played as their solutions."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Protocol, Self, cast

from pydantic import Field, model_validator

from posttrain.data.contexts import PromptContext, turn_of
from posttrain.data.plans import plan_of, told_behind
from posttrain.data.sources.base import Source, SourceRequest, SourceRows
from posttrain.data.teachers.base import Solution
from posttrain.stage.errors import UserError
from posttrain.stage.hashing import canonical_json
from posttrain.stage.seeds import stable_seed
from posttrain.stage.slots import InSlot, Part
from posttrain.stage.steady import SteadyFields

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem

# As the environments call the role that is trained.
_POLICY = "policy"

# Distinct problems run out in a small world: after this many draws a level gives what it has.
_DRAWS_PER_PROBLEM = 20


class _Played(Protocol):
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


class _Poses(Protocol):
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
    ) -> "Sequence[_Played]":
        """Play an episode of each."""


class WorldSource(Source, SteadyFields):
    """Makes problems of a world, an environment that poses them, and plays some for traces.

    A problem's answer is what there is in it, as JSON; what an episode is worth its world says.

    Source: own; each world says its own source.
    """

    STEADY: ClassVar[frozenset[str]] = frozenset({"world"})

    kind: Literal["world"] = "world"
    name: str = ""
    """Name of the source; that of the world's kind, unless it is given."""
    world: Annotated[Part, InSlot("environment")]
    """The world, with the settings that shape its problems (`posttrain env list`)."""
    levels: tuple[int, ...] = ()
    """Values of the graded settings, easy to hard; the first is difficulty 1. Without levels all
    problems are of the world as it stands."""
    graded: tuple[str, ...] = ()
    """Settings of the world that take the level's value."""
    demonstrations: int = Field(default=1, ge=0)
    """Episodes that a script plays of each training problem, for traces; 0 for none."""
    error_rate: float = Field(default=0.0, ge=0.0, le=1.0)
    """Probability that a move of the script is a random one."""
    guided: float = Field(default=0.0, ge=0.0, le=1.0)
    """Share of the problems of which one more episode is played, without an error, whose first
    moves are told as a plan behind its prompt: who learns from them can follow guidance."""
    traced: tuple[str, ...] = (_POLICY,)
    """Roles whose turns become traces, each as the answers of who plays it: with `engine` of the
    world `search` beside `policy`, a model learns to be the search engine too."""

    @model_validator(mode="before")
    @classmethod
    def _named_by_kind(cls, values: Any) -> Any:
        if isinstance(values, Mapping) and not values.get("name"):
            world = values.get("world")
            kind = world.get("kind") if isinstance(world, Mapping) else world
            return {**values, "name": str(getattr(kind, "kind", kind))}
        return values

    @model_validator(mode="after")
    def _is_graded(self) -> Self:
        if bool(self.levels) != bool(self.graded):
            raise ValueError(
                f"'{self.name}' needs both levels and graded, the settings that take a level's"
                " value, or neither"
            )
        if not hasattr(self.world, "pose"):
            raise ValueError(
                f"environment '{self.world.kind}' poses no problems of its own; take one that"
                " `posttrain env list` shows as a world, or bring problems and let"
                " rl.producer name the environment"
            )
        known = (_POLICY, *sorted(cast("_Poses", self.world).roles_asked()))
        for role in self.traced:
            if cast("_Poses", self.world).declared_role(role) is None:
                raise ValueError(
                    f"traced: world '{self.world.kind}' has no role {role}; it has"
                    f" {', '.join(known)}"
                )
        if self.demonstrations and not cast("_Poses", self.world).has_script():
            raise ValueError(
                f"no script plays world '{self.world.kind}' with these settings, so there are no"
                " traces of it; set demonstrations: 0"
            )
        return self

    def poses(self) -> tuple[Part, ...]:
        """Name the world, once for every level; see `Source.poses`."""
        return tuple(self._worlds())

    def check(self) -> None:
        """Refuse a level that the world refuses; see `Source.check`."""
        self._worlds()

    def read(self, request: SourceRequest) -> SourceRows:
        """Pose held-out problems, then others to train on; see `Source.read`."""
        seen: set[str] = set()
        heldout = list(self._posed(request, request.num_heldout, split="heldout", seen=seen))
        train = list(self._posed(request, request.num_problems, split="train", seen=seen))
        if not train or not heldout:
            raise UserError(
                f"source '{self.name}' has too few different problems: {len(seen)}, of which"
                f" {len(heldout)} are held out; enlarge its world, let its facts hold more of what"
                " happens in an episode, or lower num_heldout"
            )
        solutions = [
            *self._demonstrated(train, request.seed),
            *self._guided(train, request.seed),
        ]
        return SourceRows(train, heldout, solutions)

    def around(self, problem: "Problem", draw: Random, *, shift: int) -> "Problem":
        """Pose another problem, of the level that one has or of one near it.

        Args:
            problem: One of this source.
            draw: Where all chance comes from.
            shift: Levels by which it is harder, or easier where negative; at either end of the
                levels it is of the last one.

        Returns:
            A problem that names the other one as its parent.

        """
        worlds = self._worlds()
        level = min(max(problem.difficulty + shift, 1), len(worlds))
        return self._problem(worlds[level - 1], draw, level, parents=(problem.id,))

    def _worlds(self) -> list[Part]:
        """The world by level, easy to hard; without levels once."""
        said = self.world.model_dump()
        return [
            type(self.world).parse(
                {**said, **dict.fromkeys(self.graded, level)}, where=f"{self.name}.world"
            )
            for level in self.levels
        ] or [self.world]

    def _posed(
        self, request: SourceRequest, number: int, *, split: str, seen: set[str]
    ) -> "Iterator[Problem]":
        """Pose problems that are not in `seen`, and add them there."""
        worlds = self._worlds()
        for place, part in enumerate(worlds):
            share = number * (place + 1) // len(worlds) - number * place // len(worlds)
            draw = Random(stable_seed(request.seed, self.name, split, str(place + 1)))
            for _ in range(share * _DRAWS_PER_PROBLEM):
                if not share:
                    break
                posed = self._problem(part, draw, place + 1)
                if (key := f"{posed.prompt}\n{posed.answer}") in seen:
                    continue
                seen.add(key)
                share -= 1
                yield posed

    def _problem(
        self, part: Part, draw: Random, level: int, *, parents: tuple[str, ...] = ()
    ) -> "Problem":
        from posttrain.data.schemas import Problem

        world = cast("_Poses", part)
        prompt, facts = world.posed(draw)
        return Problem(
            source=self.name,
            prompt=prompt,
            answer=canonical_json(facts),
            difficulty=level,
            verifier="played",
            metadata=json.dumps({world.kind: facts}),
            parents=parents,
        )

    def _demonstrated(self, problems: "Sequence[Problem]", seed: int) -> Iterator[Solution]:
        world = cast("_Poses", self.world)
        who = f"script:{self.error_rate:g}"
        draws = [Random(stable_seed(seed, self.name, "script", each.id)) for each in problems]
        rounds = [
            world.demonstrate_all(problems, draws, error_rate=self.error_rate)
            for _ in range(self.demonstrations)
        ]
        for problem, *episodes in zip(problems, *rounds, strict=True):
            for played in episodes:
                views = {_POLICY: played.said, **played.others}
                for role in self.traced:
                    if role in views:
                        yield _solution(problem, views[role], who, played)

    def _guided(self, problems: "Sequence[Problem]", seed: int) -> Iterator[Solution]:
        """Episodes in which the script does what it is told."""
        world, lots = cast("_Poses", self.world), Random(stable_seed(seed, self.name, "guided"))
        chosen = [each for each in problems if lots.random() < self.guided]
        draws = [Random(stable_seed(seed, self.name, "plan", each.id)) for each in chosen]
        played = world.demonstrate_all(chosen, draws, error_rate=0.0) if chosen else []
        for problem, episode in zip(chosen, played, strict=True):
            if plan := plan_of(episode.said):
                context = PromptContext.read(problem.context)
                told = context.model_copy(update={"after": told_behind(context.after, plan)})
                asked = replace(problem, context=told.written(), parents=(problem.id,))
                yield _solution(asked, episode.said, "script:guided", episode)


def _solution(
    problem: "Problem", said: Sequence[tuple[str, str]], who: str, played: _Played
) -> Solution:
    """An episode in the eyes of a role, which may have read something in place of the prompt."""
    (author, first), *after = said
    if author != "assistant":
        problem, said = replace(problem, prompt=first, parents=(problem.id,)), after
    *between, (_, last) = said
    turns = tuple(turn_of(author, text) for author, text in between)
    return Solution(problem, last, who, between=turns, read=played.read, score=played.score)
