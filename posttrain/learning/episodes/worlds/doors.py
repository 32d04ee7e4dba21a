"""Rooms behind doors, some of them locked, with keys to find: somewhere lies a gem."""

from collections import deque
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from posttrain.learning.episodes.environments.base import (
    POLICY,
    Act,
    Ask,
    EpisodeState,
    Situation,
    Told,
)
from posttrain.learning.episodes.worlds.base import Posed, World, WorldFacts

_COLORS = ("red", "blue", "green", "gray", "pink", "gold", "black", "white")
_GEM = "gem"


class Doors(World):
    """Find and take a gem: walk through rooms, open boxes, take keys, unlock doors.

    Where the policy stands, what it may say there and which locks it sees is read each turn; to
    unlock a door is to go through it. Every key lies before its door, so whoever is thorough finds
    the gem, which is behind the last one. Taking it earns 1 and ends the episode.

    Source: own world.
    """

    SIZES: ClassVar[tuple[str, ...]] = ("rooms", "locks")

    kind: Literal["doors"] = "doors"
    rooms: int = Field(default=6, ge=2, le=26)
    """Rooms of the house."""
    locks: int = Field(default=2, ge=0, le=len(_COLORS))
    """Locked doors, each with a key of its own color that lies before it."""
    boxed: float = Field(default=0.5, ge=0.0, le=1.0)
    """Probability that a key or the gem lies in a box, which must be opened first."""
    turns: int = Field(default=24, ge=1)
    """Turns of an episode."""

    @model_validator(mode="after")
    def _has_doors(self) -> Self:
        if self.locks >= self.rooms:
            raise ValueError(f"{self.rooms} rooms have {self.rooms - 1} doors, not {self.locks}")
        return self

    def pose(self, draw: Random) -> Posed:
        """Build a house; see `World.pose`."""
        names = [chr(ord("a") + index) for index in range(self.rooms)]
        draw.shuffle(names)
        # A locked door always leads to the last room, where the gem is.
        behind = {*draw.sample(range(1, self.rooms - 1), max(0, self.locks - 1))}
        locked = behind | ({self.rooms - 1} if self.locks else set())
        colors = iter(draw.sample(_COLORS, self.locks))
        doors: list[list[str]] = []
        things: dict[str, list[str]] = {name: [] for name in names}
        boxes: dict[str, list[str]] = {name: [] for name in names}

        def lay(thing: str, room: str) -> None:
            (boxes if draw.random() < self.boxed else things)[room].append(thing)

        for index in range(1, self.rooms):
            # What lies before a door can be reached without its key: rooms are built in an order
            # in which they can be entered.
            color = next(colors) if index in locked else ""
            if color:
                lay(f"{color} key", names[draw.randrange(index)])
            doors.append([names[draw.randrange(index)], names[index], color])
        lay(_GEM, names[-1])
        facts = {
            "start": names[0],
            "doors": doors,
            "things": {name: laid for name, laid in things.items() if laid},
            "boxes": {name: laid for name, laid in boxes.items() if laid},
            "turns": self.turns,
        }
        return Posed(f"take the gem\n{_read(_entered(facts))}", facts)

    def begin(self, facts: WorldFacts, seed: int) -> Situation:  # noqa: ARG002 - nothing is drawn
        """Ask for the first turn; see `World.begin`."""
        return _asked(_entered(facts))

    def step(self, state: EpisodeState, acts: Sequence[Act], seed: int) -> Situation:  # noqa: ARG002
        """Do what is said, if it can be done; see `Environment.step`."""
        said = acts[0].text.strip()
        after = {**state, "left": state["left"] - 1}
        if said not in _commands(state):
            return _asked(after, "you cannot; ", errors=1.0)
        verb, _, what = said.partition(" ")
        room = state["room"]
        if verb == "take":
            after["has"] = sorted([*state["has"], what])
            if what == _GEM:
                return Situation({**after, "left": 0}, earned={POLICY: 1.0})
        elif verb == "open":
            after["opened"] = sorted([*state["opened"], room])
        else:  # To unlock a door is to go through it.
            if verb == "unlock":
                after["unlocked"] = sorted([*state["unlocked"], *_between(room, what)])
            after["room"] = what
            after["visited"] = sorted({*state["visited"], what})
        return _asked(after)

    def best_move(self, state: EpisodeState, role: str, draw: Random) -> str:
        """Take what lies here, or go to the nearest place that is new; see `World.best_move`."""
        for verb in ("take", "open"):
            for command in _commands(state):
                if command.startswith(verb):
                    return command
        queue, seen = deque([(state["room"], "")]), {state["room"]}
        while queue:
            room, first = queue.popleft()
            if first and (room not in state["visited"] or _is_left(state, room)):
                return first
            if room not in state["visited"]:
                continue
            for beyond, color in _exits(state, room):
                if beyond in seen or (color and f"{color} key" not in state["has"]):
                    continue
                seen.add(beyond)
                command = f"{'unlock' if color else 'go'} {beyond}"
                queue.append((beyond, first or command))
        return self.random_move(state, role, draw)

    def random_move(self, state: EpisodeState, role: str, draw: Random) -> str:  # noqa: ARG002
        """Do anything that can be done; see `World.random_move`."""
        return draw.choice(_commands(state))


def _entered(facts: WorldFacts) -> dict[str, Any]:
    """The state in which an episode begins."""
    room = facts["start"]
    begun = {"room": room, "has": [], "opened": [], "unlocked": [], "visited": [room]}
    return {**facts, **begun, "left": facts["turns"]}


def _between(one: str, other: str) -> tuple[str]:
    return (min(one, other) + max(one, other),)


def _exits(state: Mapping[str, Any], room: str) -> list[tuple[str, str]]:
    """The rooms next to one, with the color of the lock between, if it is still locked."""
    found = []
    for one, other, color in state["doors"]:
        if room in (one, other):
            beyond = other if room == one else one
            is_open = _between(one, other)[0] in state["unlocked"]
            found.append((beyond, "" if is_open else color))
    return sorted(found)


def _lying(state: Mapping[str, Any], room: str) -> list[str]:
    """What lies open in a room and was not taken."""
    boxed = state["boxes"].get(room, []) if room in state["opened"] else []
    return [each for each in (*state["things"].get(room, []), *boxed) if each not in state["has"]]


def _is_shut(state: Mapping[str, Any], room: str) -> bool:
    return room in state["boxes"] and room not in state["opened"]


def _is_left(state: Mapping[str, Any], room: str) -> bool:
    """Tell whether something is left to be done in a room that was seen."""
    return bool(_lying(state, room)) or _is_shut(state, room)


def _commands(state: Mapping[str, Any]) -> list[str]:
    """All that may be said, in an order that tells nothing."""
    exits, room = _exits(state, state["room"]), state["room"]
    return [
        *(f"go {beyond}" for beyond, color in exits if not color),
        *(f"unlock {beyond}" for beyond, color in exits if f"{color} key" in state["has"]),
        *(f"take {thing}" for thing in _lying(state, room)),
        *(["open box"] if _is_shut(state, room) else []),
    ]


def _read(state: Mapping[str, Any]) -> str:
    """What is read in a situation, which names it too."""
    locked = [f"{beyond} {color}" for beyond, color in _exits(state, state["room"]) if color]
    parts = [
        f"in {state['room']}",
        *([f"locked {', '.join(locked)}"] if locked else []),
        *([f"has {', '.join(state['has'])}"] if state["has"] else []),
        f"can {', '.join(_commands(state))}",
    ]
    return "; ".join(parts)


def _asked(state: EpisodeState, first: str = "", *, errors: float = 0.0) -> Situation:
    """Ask for a turn, if there is one left."""
    facts = {"tool_errors": errors} if errors else {}
    if not state["left"]:
        return Situation(state, facts=facts)
    read = _read(state)
    told = (Told("user", first + read),) if state["left"] < state["turns"] else ()
    return Situation(state, (Ask(POLICY, told),), key=read, facts=facts)
