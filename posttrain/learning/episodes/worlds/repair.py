"""A small repository with one wrong line, to be found by its tests and put right."""

import json
import sys
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, ClassVar, Literal

from pydantic import Field

from posttrain.backends.sandbox.program import MIB, Program, ProgramEnd, ProgramLimits
from posttrain.learning.episodes.environments.base import (
    POLICY,
    Act,
    Ask,
    EpisodeState,
    Situation,
    Told,
)
from posttrain.learning.episodes.environments.calculator import computed
from posttrain.learning.episodes.environments.sandboxed import Sandboxed
from posttrain.learning.episodes.worlds.base import Posed, World, WorldFacts
from posttrain.stage.hashing import canonical_json, sha256_of

_OPERATIONS = ("+", "-", "*")
_LONGEST_LINE, _SHOWN_CHARACTERS = 200, 400
_HIDDEN = 4
_LIMITS = ProgramLimits(seconds=5.0, cpu_seconds=5.0, memory_bytes=256 * MIB)
_TESTS = "test.py"
# The hidden calls are made before the tests, which the policy may change, and their values are
# written before anything of the tests has run. What is expected of them is never in the sandbox.
_RUNNER = """\
import importlib, io, json, runpy, sys
calls = json.load(sys.stdin)
said, sys.stdout = sys.stdout, io.StringIO()
values = []
for module, name, arguments in calls:
    try:
        value = getattr(importlib.import_module(module), name)(*arguments)
        values.append(value if type(value) is int else None)
    except BaseException:
        values.append(None)
print(json.dumps(values), file=said, flush=True)
wrong = ""
try:
    runpy.run_path("test.py")
except BaseException as error:
    wrong = f"{type(error).__name__} {error}"
print(json.dumps(wrong), file=said, flush=True)
"""


class Repair(Sandboxed, World):
    """Find the one line that does not compute what the comment above it says, and replace it.

    A turn is `test`, `cat a.py`, `set a.py 2 return x + 1`, which keeps the line's indentation, or
    `ls`. An episode ends when the tests pass, and pays if calls that no file shows are right too:
    to change the tests pays nothing.

    Source: own world.
    """

    EXACT: ClassVar[bool] = False  # Code that a policy wrote can read a clock.
    SIZES: ClassVar[tuple[str, ...]] = ("files", "per_file", "turns")

    kind: Literal["repair"] = "repair"
    files: int = Field(default=3, ge=1, le=20)
    """Files beside the tests."""
    per_file: int = Field(default=2, ge=1, le=9)
    """Functions of each."""
    turns: int = Field(default=8, ge=2)
    """Turns of an episode."""

    def pose(self, draw: Random) -> Posed:
        """Write files, and make one line wrong; see `World.pose`."""
        names = [chr(ord("a") + place) for place in range(self.files)]
        functions = [
            (module, f"{module}{number}", _formula(draw))
            for module in names
            for number in range(1, self.per_file + 1)
        ]
        broken = draw.randrange(len(functions))
        wrong = _mutated(functions[broken][2], draw)
        right: dict[str, list[str]] = {f"{module}.py": [] for module in names}
        tests, hidden = list[str](), list[Any]()
        for place, (module, name, formula) in enumerate(functions):
            lines = [f"def {name}(x, y):", f"    # {formula}", f"    return {formula}"]
            right[f"{module}.py"] += lines
            other = wrong if place == broken else ""
            shown, *kept = [_telling(formula, other, draw) for _ in range(_HIDDEN + 1)]
            hidden += [[module, name, given, _value(formula, given)] for given in kept]
            value = _value(formula, shown)
            tests.append(f"import {module}; r = {module}.{name}{tuple(shown)}")
            tests.append(f"assert r == {value}, '{name} {value} not %s' % r")
        module, name, formula = functions[broken]
        place = right[f"{module}.py"].index(f"def {name}(x, y):") + 3
        files = _with_line(right, f"{module}.py", place, f"return {wrong}")
        facts: dict[str, Any] = {
            "files": {**files, _TESTS: tests},
            "right": {**right, _TESTS: tests},
            "hidden": hidden,
            "left": self.turns,
        }
        return Posed(" ".join(facts["files"]), facts)

    def begin(self, facts: WorldFacts, seed: int) -> Situation:  # noqa: ARG002 - nothing is drawn
        """Ask; see `World.begin`."""
        return _asked({**facts, "seen": ""})

    def programs(self, state: EpisodeState, acts: Sequence[Act]) -> list[Program]:
        """Run the tests where they are asked for; see `Sandboxed.programs`."""
        if acts[0].text.strip() != "test":
            return []
        files = {
            name: "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")
            for name, lines in state["files"].items()
        }
        files["..run"] = _RUNNER.encode()
        calls = json.dumps([call[:3] for call in state["hidden"]]).encode()
        return [Program((sys.executable, "..run"), files, calls, _LIMITS)]

    def answered(
        self, state: EpisodeState, acts: Sequence[Act], ends: Sequence[ProgramEnd]
    ) -> Situation:
        """Do what was said; see `Sandboxed.answered`."""
        after = {**state, "left": state["left"] - 1}
        if ends:
            wrong, values = _ran(ends[0])
            if not wrong:
                right = values == [call[3] for call in state["hidden"]]
                return Situation(after, earned={POLICY: 1.0} if right else {})
            return _asked({**after, "seen": "test"}, wrong)
        match acts[0].text.strip().split(maxsplit=3):
            case ["ls"]:
                return _asked(after, " ".join(state["files"]))
            case ["cat", name] if name in state["files"]:
                lines = enumerate(state["files"][name], start=1)
                shown = "\n".join(f"{place} {line}" for place, line in lines)
                return _asked({**after, "seen": name}, shown)
            case ["set", name, place, line] if _is_line(state, name, place, line):
                changed = _with_line(state["files"], name, int(place), line)
                return _asked({**after, "files": changed, "seen": "set"}, "set")
        return _asked(after, "no such command", errors=1.0)

    def best_move(self, state: EpisodeState, role: str, draw: Random) -> str:  # noqa: ARG002
        """Test, read the file that a test names, replace, and test; see `World.best_move`."""
        for name, lines in state["right"].items():
            for place, line in enumerate(lines, start=1):
                if state["files"][name][place - 1] == line:
                    continue
                if state["seen"] == name:
                    return f"set {name} {place} {line.strip()}"
                return f"cat {name}" if state["seen"] == "test" else "test"
        return "test"

    def random_move(self, state: EpisodeState, role: str, draw: Random) -> str:  # noqa: ARG002
        """Test, read or replace anything; see `World.random_move`."""
        name = draw.choice([*state["files"]][:-1])
        place = draw.randint(1, len(state["files"][name]))
        return draw.choice(("test", f"cat {name}", f"set {name} {place} return {_formula(draw)}"))


def _formula(draw: Random) -> str:
    first, second = draw.choice(_OPERATIONS), draw.choice(_OPERATIONS)
    return f"x {first} {draw.randint(2, 9)} {second} y"


def _mutated(formula: str, draw: Random) -> str:
    """Another operation, or another number, in one place."""
    words = formula.split()
    place = draw.choice((1, 2, 3))
    others = [*map(str, range(2, 10))] if place == 2 else [*_OPERATIONS]
    words[place] = draw.choice([each for each in others if each != words[place]])
    return " ".join(words)


def _value(formula: str, given: Sequence[int]) -> int:
    x, y = given
    return computed(formula.replace("x", str(x)).replace("y", str(y)))


def _telling(formula: str, other: str, draw: Random) -> list[int]:
    """Arguments at which a formula has another value than a second one, if there is one."""
    while True:
        given = [draw.randint(2, 30), draw.randint(2, 30)]
        if not other or _value(formula, given) != _value(other, given):
            return given


def _is_line(state: EpisodeState, name: str, place: str, line: str) -> bool:
    known = len(state["files"].get(name, ()))
    is_place = place.isascii() and place.isdecimal() and len(place) < 5
    return is_place and 1 <= int(place) <= known and len(line) <= _LONGEST_LINE and "\n" not in line


def _with_line(
    files: Mapping[str, Sequence[str]], name: str, place: int, line: str
) -> dict[str, Any]:
    lines = [*files[name]]
    before = lines[place - 1]
    lines[place - 1] = before[: len(before) - len(before.lstrip())] + line.strip()
    return {**files, name: lines}


def _ran(end: ProgramEnd) -> tuple[str, list[Any]]:
    """What the tests said, in a line, and the values of the hidden calls."""
    if not end.ok:
        return f"stopped: {end.how}", []
    try:
        values, *_, wrong = map(json.loads, end.output.strip().split("\n"))
        return str(wrong).partition("\n")[0].strip(), list(values)
    except (ValueError, TypeError, RecursionError):
        # The files wrote it, or ended the runner before it did.
        return "no verdict", []


def _asked(state: EpisodeState, told: str = "", *, errors: float = 0.0) -> Situation:
    """Ask, if there is a turn left."""
    facts = {"tool_errors": errors} if errors else {}
    if not state["left"]:
        return Situation(state, facts=facts)
    new = (Told("user", told[:_SHOWN_CHARACTERS]),) if told else ()
    key = f"{state['left']}/{state['seen']}/{sha256_of(canonical_json(state['files']))[:16]}"
    return Situation(state, (Ask(POLICY, new),), key=key, facts=facts)
