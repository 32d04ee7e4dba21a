"""Missions in MiniGrid and BabyAI levels, read as text: who walks sees a part of the place."""

import contextlib
import io
import json
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Any, ClassVar, Literal, NamedTuple, Self

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
from posttrain.learning.episodes.worlds.underway import Underway
from posttrain.stage.errors import UserError
from posttrain.stage.extras import extra_line

Level = Literal["go_to", "pick_up", "put_next", "open_door", "unlock", "find", "door_key"]

# Gymnasium's name of a level, what it calls its size and its number of things, and what is fixed.
_LEVELS: Mapping[str, tuple[str, str, str, Mapping[str, Any]]] = {
    "go_to": ("BabyAI-GoToLocal-v0", "room_size", "num_dists", {}),
    "pick_up": (
        "BabyAI-BossLevel-v0",
        "room_size",
        "num_dists",
        {"num_rows": 1, "num_cols": 1, "locked_room_prob": 0, "locations": False,
         "unblocking": False, "action_kinds": ["pickup"], "instr_kinds": ["action"]},
    ),
    "put_next": ("BabyAI-PutNextLocal-v0", "room_size", "num_objs", {}),
    "open_door": ("BabyAI-OpenDoorColor-v0", "room_size", "", {}),
    "unlock": ("BabyAI-UnlockLocal-v0", "room_size", "", {}),
    "find": ("BabyAI-FindObjS5-v0", "room_size", "", {}),
    "door_key": ("MiniGrid-DoorKey-5x5-v0", "size", "", {}),
}  # fmt: skip

_MOVES = ("left", "right", "forward", "take", "drop", "toggle")
_FORWARD = ((1, 0), (0, 1), (-1, 0), (0, -1))
_SIDE, _AHEAD = 3, 6  # How far is seen to either side and ahead.

_UNDERWAY = Underway[Any](1024)  # Gymnasium's environments.


class Look(NamedTuple):
    """What is seen from one place: all that is read there."""

    columns: str
    """For each column from left to right, how far the floor goes on: a digit where something ends
    it, a letter (a is 0) where no more is seen."""
    things: tuple[tuple[str, int, int], ...]
    """What stands there, how far ahead, and how far to the right."""
    carried: str

    def text(self) -> str:
        """Write it down, nearest things first."""
        said = [self.columns]
        for name, ahead, right in self.things:
            aside = f"{'r' if right > 0 else 'l'}{abs(right)}"
            places = ([f"f{ahead}"] if ahead else []) + ([aside] if right else [])
            said.append(" ".join((name, *places)))
        return "; ".join([*said, *([f"has {self.carried}"] if self.carried else [])])


class MiniGrid(World):
    """Fulfil the mission of a level of MiniGrid or BabyAI, as text.

    A turn is one or more of the moves left, right, forward, take, drop and toggle, which opens.
    What is seen is read: for each of seven columns, the middle one ahead, how far the floor goes
    on (a digit where something ends it, a letter where no more is seen), then each thing with
    its place (f2 l1: two ahead, one to the left), then what is carried. The environment's own
    check says when the mission is fulfilled, which earns 1, and ends the episode.
    """

    SIZES: ClassVar[tuple[str, ...]] = ("size", "things", "levels")
    PACKAGES: ClassVar[frozenset[str]] = frozenset({"gymnasium", "minigrid"})
    SOURCE: ClassVar[str] = "MiniGrid, arXiv 2306.13831; levels of BabyAI, arXiv 1810.08272"

    kind: Literal["minigrid"] = "minigrid"
    levels: tuple[Level, ...] = Field(default=("pick_up",), min_length=1)
    """Kinds of missions, of which each problem draws one."""
    size: int = Field(default=6, ge=5, le=25)
    """Width of a room, walls included."""
    things: int = Field(default=3, ge=2)
    """Things in the room, where a level says how many."""
    turns: int = Field(default=24, ge=1)
    """Turns of an episode."""
    moves: int = Field(default=1, ge=1)
    """Most moves of one turn."""

    @model_validator(mode="after")
    def _has_room(self) -> Self:
        most = (self.size - 2) ** 2 // 3
        if self.things > most:
            raise ValueError(f"size {self.size} has room for {most} things, not {self.things}")
        return self

    def pose(self, draw: Random) -> Posed:
        """Draw a level and its seed; see `World.pose`."""
        facts = {
            "level": draw.choice(self.levels),
            "size": self.size,
            "things": self.things,
            "seed": draw.getrandbits(31),
            "turns": self.turns,
            "moves": self.moves,
        }
        environment = _made(facts)
        _keep(facts, "", environment)
        looks = look_around(environment).text()
        return Posed(f"{environment.mission}\n{', '.join(_MOVES)}\n{looks}", facts)

    def begin(self, facts: WorldFacts, seed: int) -> Situation:  # noqa: ARG002 - the facts' own
        """Ask for the first turn; see `World.begin`."""
        environment = _taken(facts, "")
        look = look_around(environment)
        state = {
            **facts,
            "mission": environment.mission,
            "left": facts["turns"],
            "done": "",
            "pose": [0, 0, 0],
            "known": _remembered({}, (0, 0, 0), look),
            "carried": "",
        }
        _keep(facts, "", environment)
        return Situation(state, (Ask(POLICY),), key=look.text())

    def step(self, state: EpisodeState, acts: Sequence[Act], seed: int) -> Situation:  # noqa: ARG002
        """Walk; see `Environment.step`."""
        moves = acts[0].text.split()
        after = {**state, "left": state["left"] - 1}
        environment = _taken(state, state["done"])
        known = 0 < len(moves) <= state["moves"] and set(moves) <= set(_MOVES)
        done, solved, pose = state["done"], False, tuple(state["pose"])
        look, memory = look_around(environment), state["known"]
        for move in moves if known else ():
            before = tuple(map(int, environment.agent_pos))
            _, reward, over, _, _ = environment.step(_MOVES.index(move))
            done += str(_MOVES.index(move))
            solved = over and float(reward) > 0
            moved = tuple(map(int, environment.agent_pos)) != before
            pose, look = _moved(pose, move, moved=moved), look_around(environment)
            memory = _remembered(memory, pose, look)
            if over:
                after["left"] = 0
                break
        after |= {"done": done, "pose": list(pose), "known": memory, "carried": look.carried}
        _keep(state, done, environment)
        facts = {} if known else {"tool_errors": 1.0}
        if solved or not after["left"]:
            return Situation(after, earned={POLICY: 1.0} if solved else {}, facts=facts)
        read = look.text() if known else f"no such move; {look.text()}"
        return Situation(after, (Ask(POLICY, (Told("user", read),)),), key=look.text(), facts=facts)

    def close(self, state: EpisodeState) -> None:
        """Forget the environment of an episode; see `Environment.close`."""
        _UNDERWAY.take(_name(state), state["done"])

    def best_move(self, state: EpisodeState, role: str, draw: Random) -> str:
        """Go the shortest way over what was seen, or look further; see `World.best_move`."""
        plan = _plan(state)
        return " ".join(plan[: state["moves"]]) or self.random_move(state, role, draw)

    def random_move(self, state: EpisodeState, role: str, draw: Random) -> str:  # noqa: ARG002
        """Do anything; see `World.random_move`."""
        return draw.choice(_MOVES)


def _made(facts: WorldFacts) -> Any:
    """Make the environment of a problem as it begins."""
    try:
        import gymnasium
        import minigrid
    except ModuleNotFoundError:
        raise UserError(
            "the world 'minigrid' needs gymnasium and minigrid, which are not installed; run:"
            f" {extra_line('grid')}, or take the world 'doors', which needs neither"
        ) from None
    minigrid.register_minigrid_envs  # noqa: B018 - its import has registered the levels
    level, size, things, fixed = _LEVELS[facts["level"]]
    options = {**fixed, size: facts["size"], **({things: facts["things"]} if things else {})}
    # A level says on the standard output that it drew another room.
    with contextlib.redirect_stdout(io.StringIO()):
        made = gymnasium.make(level, disable_env_checker=True, **options).unwrapped
        made.reset(seed=facts["seed"])
    made.max_steps = 1 << 30  # Turns are counted here.
    return made


def _name(facts: Mapping[str, Any]) -> str:
    return json.dumps([facts[name] for name in ("level", "size", "things", "seed")])


def _taken(facts: Mapping[str, Any], done: str) -> Any:
    """The environment after some moves, which nobody else holds."""
    environment = _UNDERWAY.take(_name(facts), done)
    if environment is None:
        environment = _made(facts)
        for move in done:
            environment.step(int(move))
    return environment


def _keep(facts: Mapping[str, Any], done: str, environment: Any) -> None:
    _UNDERWAY.keep(_name(facts), done, environment)


def look_around(environment: Any) -> Look:
    """See what the agent sees."""
    grid, seen = environment.gen_obs_grid()
    columns, things = "", []
    for column in range(2 * _SIDE + 1):
        open_so_far, ended = 0, ""
        for ahead in range(_AHEAD + 1):
            if not ahead and column == _SIDE:
                continue  # The agent's own place, where the grid has what it carries.
            cell = grid.get(column, _AHEAD - ahead) if seen[column, _AHEAD - ahead] else None
            solid = cell is not None and not (cell.type in ("goal", "floor") or _is_open(cell))
            if cell is not None and cell.type not in ("wall", "floor"):
                things.append((_called(cell), ahead, column - _SIDE))
            if not ended and not seen[column, _AHEAD - ahead]:
                ended = chr(ord("a") + open_so_far)
            elif not ended and solid:
                ended = str(open_so_far)
            open_so_far += not ended
        columns += ended or chr(ord("a") + open_so_far)
    carried = _called(environment.carrying) if environment.carrying else ""
    things.sort(key=lambda each: (each[1] + abs(each[2]), each))
    return Look(columns, tuple(things), carried)


def _is_open(cell: Any) -> bool:
    return cell.type == "door" and bool(cell.is_open)


def _called(cell: Any) -> str:
    if cell.type == "goal":
        return "goal"
    if cell.type != "door":
        return f"{cell.color} {cell.type}"
    return f"{cell.color} door {'open' if cell.is_open else 'locked' if cell.is_locked else 'shut'}"


# What the script knows: places by their way from the first one, as they were read.

_Pose = tuple[int, ...]
_Known = Mapping[str, str]


def _at(pose: _Pose, ahead: int, right: int) -> str:
    (fx, fy), (rx, ry) = _FORWARD[pose[2]], _FORWARD[(pose[2] + 1) % 4]
    return f"{pose[0] + ahead * fx + right * rx},{pose[1] + ahead * fy + right * ry}"


def _moved(pose: _Pose, move: str, *, moved: bool = True) -> _Pose:
    x, y, facing = pose
    if move == "forward":
        dx, dy = _FORWARD[facing] if moved else (0, 0)
        return x + dx, y + dy, facing
    return x, y, (facing + {"left": 3, "right": 1}.get(move, 0)) % 4


def _remembered(known: _Known, pose: _Pose, look: Look) -> dict[str, str]:
    """Put a look into what is known: floor is empty, walls are #, things have their names."""
    after = {**known, _at(pose, 0, 0): known.get(_at(pose, 0, 0), "")}
    for column, code in enumerate(look.columns):
        first = int(column == _SIDE)
        length = int(code) if code.isdigit() else ord(code) - ord("a")
        for ahead in range(first, first + length):
            after[_at(pose, ahead, column - _SIDE)] = ""
        if code.isdigit():
            after[_at(pose, first + length, column - _SIDE)] = "#"
    for name, ahead, right in look.things:
        after[_at(pose, ahead, right)] = name
    return after


def _plan(state: EpisodeState) -> list[str]:
    """The moves to the next end in sight, as far as it is known."""
    known, carried, mission = state["known"], state["carried"], state["mission"]
    search = _Search(state)

    def places(said: str) -> set[str]:
        return {place for place, name in known.items() if _is(name, said)}

    goal = places("goal") if "goal" in mission else set()
    if way := search.to(lambda pose: _at(pose, 0, 0) in goal):
        return way
    wanted, floor = _wanted(mission), {place for place, name in known.items() if name == ""}
    if wanted.move == "drop" and _is(carried, wanted.thing):
        beside = {near for place in places(wanted.beside) for near in _near(place)}
        return search.facing(beside & floor, "drop") or search.further()
    targets = {place for place in places(wanted.thing) if not known[place].endswith("open")}
    move = "take" if wanted.move == "drop" else wanted.move
    locked = sorted({known[place] for place in targets if known[place].endswith("locked")})
    if locked and not _is(carried, key := f"{locked[0].split()[0]} key"):
        targets, move = places(key), "take"
    if move == "take" and carried and targets:
        return search.facing(floor, "drop")
    return (search.facing(targets, move) if targets else []) or search.further()


class _Wanted(NamedTuple):
    """What a mission asks for: a move in front of a thing; to drop it beside another."""

    move: str
    thing: str
    beside: str = ""


def _wanted(mission: str) -> _Wanted:
    patterns = (("go to (.*)", "forward"), ("pick up (.*)", "take"), ("open (.*)", "toggle"))
    if match := re.fullmatch("put (.*) next to (.*)", mission):
        return _Wanted("drop", match[1], match[2])
    for pattern, move in patterns:
        if match := re.fullmatch(pattern, mission):
            return _Wanted(move, match[1])
    return _Wanted("toggle", "the door")  # On the way to a goal.


def _is(name: str, said: str) -> bool:
    """Tell whether a thing is one that a mission speaks of, such as "a red object"."""
    return bool(name) and set(said.split()) - {"the", "a", "object"} <= set(name.split())


def _near(place: str) -> Iterator[str]:
    x, y = map(int, place.split(","))
    return (f"{x + dx},{y + dy}" for dx, dy in _FORWARD)


class _Search:
    """Shortest ways over what is known, through doors that can be opened."""

    def __init__(self, state: EpisodeState) -> None:
        self.known: _Known = state["known"]
        self.carried: str = state["carried"]
        self.pose: _Pose = tuple(state["pose"])

    def _opens(self, place: str) -> bool:
        color, _, how = (self.known.get(place, "").split() + ["", "", ""])[:3]
        return how == "shut" or (how == "locked" and self.carried == f"{color} key")

    def _passes(self, place: str) -> bool:
        name = self.known.get(place, "#")
        return name in ("", "goal") or name.endswith("open") or self._opens(place)

    def to(self, done: Callable[[_Pose], bool]) -> list[str]:
        """The moves to the nearest pose that will do; none where there is none, or it is here."""
        ways: dict[_Pose, list[str]] = {self.pose: []}
        queue = deque([self.pose])
        while queue:
            pose = queue.popleft()
            if done(pose):
                return ways[pose]
            for move in ("forward", "left", "right"):
                after, ahead = _moved(pose, move), _at(pose, 1, 0)
                if after in ways or (move == "forward" and not self._passes(ahead)):
                    continue
                opens = ["toggle"] if move == "forward" and self._opens(ahead) else []
                ways[after] = [*ways[pose], *opens, move]
                queue.append(after)
        return []

    def facing(self, places: set[str], move: str) -> list[str]:
        """The moves that end in front of one of some places, and there `move`."""
        if _at(self.pose, 1, 0) in places:
            return [move]
        way = self.to(lambda pose: _at(pose, 1, 0) in places)
        return [*way, move] if way and move != "forward" else way

    def further(self) -> list[str]:
        """The moves to where something not yet known lies straight ahead."""

        def looks(pose: _Pose) -> bool:
            for ahead in range(1, _AHEAD + 1):
                name = self.known.get(_at(pose, ahead, 0))
                if name is None:
                    return True
                if name not in ("", "goal") and not name.endswith("open"):
                    return False
            return False

        return self.to(looks)
