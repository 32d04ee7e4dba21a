"""Problems that a world poses, with episodes that a script played as their solutions."""

import json
from collections.abc import Iterator, Mapping
from random import Random
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, cast

from pydantic import Field, model_validator

from posttrain.data.sources.base import Source, SourceRequest, SourceRows
from posttrain.data.sources.graded import even_shares, refuse_half_graded
from posttrain.data.sources.scripted import (
    POLICY_ROLE,
    Poses,
    demonstrated,
    guided,
    refuse_unplayable,
)
from posttrain.stage.errors import UserError
from posttrain.stage.hashing import canonical_json
from posttrain.stage.seeds import stable_seed
from posttrain.stage.slots import InSlot, Part
from posttrain.stage.steady import SteadyFields

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem

# Distinct problems run out in a small world: after this many draws a level gives what it has.
_DRAWS_PER_PROBLEM = 20


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
    traced: tuple[str, ...] = (POLICY_ROLE,)
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
        refuse_half_graded(self.name, self.levels, self.graded, what="settings")
        refuse_unplayable(self.world, self.traced, scripted=self.demonstrations > 0)
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

        def chance(what: str, *of: str) -> Random:
            return Random(stable_seed(request.seed, self.name, what, *of))

        world, lots = cast("Poses", self.world), chance("guided")
        chosen = [each for each in train if lots.random() < self.guided]
        solutions = [
            *demonstrated(
                world,
                train,
                [chance("script", each.id) for each in train],
                number=self.demonstrations,
                error_rate=self.error_rate,
                roles=self.traced,
            ),
            *guided(world, chosen, [chance("plan", each.id) for each in chosen]),
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
        shares = even_shares(number, len(worlds))
        for level, (part, share) in enumerate(zip(worlds, shares, strict=True), start=1):
            draw = Random(stable_seed(request.seed, self.name, split, str(level)))
            for _ in range(share * _DRAWS_PER_PROBLEM):
                if not share:
                    break
                posed = self._problem(part, draw, level)
                if (key := f"{posed.prompt}\n{posed.answer}") in seen:
                    continue
                seen.add(key)
                share -= 1
                yield posed

    def _problem(
        self, part: Part, draw: Random, level: int, *, parents: tuple[str, ...] = ()
    ) -> "Problem":
        from posttrain.data.schemas import Problem

        world = cast("Poses", part)
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
