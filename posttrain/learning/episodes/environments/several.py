"""Several environments in one stage: each problem is played where it was posed."""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import Field, WithJsonSchema, model_validator

from posttrain.learning.episodes.environments.base import (
    Act,
    Environment,
    EpisodeState,
    Said,
    Situation,
)
from posttrain.stage.errors import UserError
from posttrain.stage.slots import InSlot

if TYPE_CHECKING:
    from random import Random

    from posttrain.data.schemas import Problem

# A schema of all that an environment may be would have itself within.
_NAMED = WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "object", "required": ["kind"]}]})
_WHERE, _STATE = "environment", "state"


class Several(Environment):
    """Play each problem in the world that posed it, one of several.

    So one policy is probed, trained and evaluated in many worlds at once, on the mixed problems of
    several sources. What a world tells, pays and counts is as if it were alone.
    """

    JUDGES: ClassVar[bool] = True
    SOURCE = "NaviLLM, arXiv 2312.02010: one model for many tasks of navigation"

    kind: Literal["several"] = "several"
    worlds: tuple[Annotated[Environment, InSlot("environment"), _NAMED], ...] = Field(min_length=2)
    """Them, by their kinds or with settings; no kind twice."""

    @model_validator(mode="after")
    def _can_be_told_apart(self) -> Self:
        kinds = [world.kind for world in self.worlds]
        for kind, world in zip(kinds, self.worlds, strict=True):
            if not hasattr(world, "pose"):
                raise ValueError(
                    f"environment '{kind}' poses no problems, so that none could be told to be"
                    " its own; take worlds (`posttrain env list`)"
                )
            if kinds.count(kind) > 1:
                raise ValueError(f"world '{kind}' stands there twice; leave one out")
            if not world.EXACT:
                raise ValueError(
                    f"what world '{kind}' answers may hang on a clock or a network, and episodes of"
                    " several worlds are exact; leave it out"
                )
        return self

    def start(self, problem: "Problem", seed: int) -> Situation:
        """Begin in the problem's own world; see `Environment.start`.

        Args:
            problem: What it is about.
            seed: Of this problem.

        Returns:
            Where the episode stands.

        Raises:
            UserError: None of the worlds has posed it.

        """
        posed = json.loads(problem.metadata or "{}")
        for world in self.worlds:
            if world.kind in posed:
                return _in(world.kind, world.start(problem, seed))
        raise UserError(
            f"environment several: '{problem.prompt[:40]}' of {problem.source} was posed by none of"
            f" {', '.join(world.kind for world in self.worlds)}; name the world of its source too"
        )

    def step(self, state: EpisodeState, acts: Sequence[Act], seed: int) -> Situation:
        """Let the world answer; see `Environment.step`."""
        return _in(state[_WHERE], self._world(state).step(state[_STATE], acts, seed))

    def step_all(self, turns: Sequence[Said]) -> list[Situation]:
        """Let each world answer what was said in it at once; see `Environment.step_all`."""
        found: dict[int, Situation] = {}
        for world in self.worlds:
            places = [n for n, turn in enumerate(turns) if turn.state[_WHERE] == world.kind]
            said = [turns[n]._replace(state=turns[n].state[_STATE]) for n in places]
            for place, situation in zip(places, world.step_all(said), strict=True):
                found[place] = _in(world.kind, situation)
        return [found[place] for place in range(len(turns))]

    def unbound(self, state: EpisodeState, role: str, draw: "Random") -> str | None:
        """Ask the world for its script; see `Environment.unbound`."""
        return self._world(state).unbound(state[_STATE], role, draw)

    def close(self, state: EpisodeState) -> None:
        """Free what the world holds; see `Environment.close`."""
        self._world(state).close(state[_STATE])

    def roles_asked(self) -> frozenset[str]:
        """Name the roles of all of them; see `Environment.roles_asked`."""
        return frozenset().union(*(world.roles_asked() for world in self.worlds))

    def worlds_played(self) -> tuple[Environment, ...]:
        """Name all of them; see `Environment.worlds_played`."""
        return self.worlds

    def authors(self) -> tuple[str, ...]:
        """Name who speaks in any of them; see `Environment.authors`."""
        return tuple(dict.fromkeys(each for world in self.worlds for each in world.authors()))

    def _world(self, state: Mapping[str, object]) -> Environment:
        return next(world for world in self.worlds if world.kind == state[_WHERE])


def _in(kind: str, situation: Situation) -> Situation:
    """Note in a state which world it is of; equal keys are of one world."""
    state = {_WHERE: kind, _STATE: situation.state}
    return situation._replace(state=state, key=f"{kind}/{situation.key}")
