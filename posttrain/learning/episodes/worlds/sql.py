"""Questions about tables: a policy that queries them, reads rows, and answers."""

import json
import sys
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Literal

from pydantic import Field

from posttrain.backends.sandbox.lookups import looked_up
from posttrain.backends.sandbox.program import MIB, Program, ProgramEnd, ProgramLimits
from posttrain.learning.episodes.environments.base import (
    POLICY,
    Ask,
    EpisodeState,
    Said,
    Situation,
    Told,
)
from posttrain.learning.episodes.environments.sandboxed import InSandbox, run_fairly
from posttrain.learning.episodes.worlds.base import Posed, World, WorldFacts

Found = tuple[list[list[Any]], str]
"""Rows that a query gave, and what was wrong with it."""

_THINGS, _EVENTS = ("item", "book", "tool", "part"), ("sale", "loan", "trip", "test")
_GROUPS: Mapping[str, Sequence[str]] = {
    "kind": ("pen", "cup", "hat", "map"),
    "color": ("red", "blue", "gray", "pink"),
    "town": ("oslo", "bern", "rome", "kyiv"),
}
_OF_THINGS, _OF_EVENTS = ("price", "size", "age"), ("cost", "days", "miles")
_SHOWN_ROWS, _SHOWN_CHARACTERS = 8, 200
# As many queries as one sandbox answers, of a second each at most.
_PER_PROGRAM = 32
_LIMITS = ProgramLimits(seconds=60.0, cpu_seconds=60.0, memory_bytes=256 * MIB)

# What the script's own queries give, so that playing it starts no sandbox; it only saves time.
_known: OrderedDict[str, Found] = OrderedDict()
_MOST_KNOWN = 1024


class Sql(InSandbox, World):
    """Answer a question about tables; a turn that begins with `select` queries, any other answers.

    The tables can only be read, by SQLite in the sandbox, and every query is told its first rows.
    An answer is the number and nothing else.

    Source: own world.
    """

    SIZES: ClassVar[tuple[str, ...]] = ("rows", "tables", "queries")

    kind: Literal["sql"] = "sql"
    rows: int = Field(default=12, ge=2, le=1000)
    """Rows of each table."""
    tables: Literal[1, 2] = 2
    """With 2, half of the questions need both tables."""
    queries: int = Field(default=3, ge=1)
    """Queries that an episode has, of which each is a turn."""

    def pose(self, draw: Random) -> Posed:
        """Fill tables, and choose what is asked; see `World.pose`."""
        thing, event = draw.choice(_THINGS), draw.choice(_EVENTS)
        group = draw.choice([*_GROUPS])
        number, amount = draw.choice(_OF_THINGS), draw.choice(_OF_EVENTS)
        things = [
            [place + 1, draw.choice(_GROUPS[group]), draw.randint(1, 99)]
            for place in range(self.rows)
        ]
        events = [[draw.randint(1, self.rows), draw.randint(1, 99)] for _ in range(self.rows)]
        tables: list[dict[str, Any]] = [
            {"name": thing, "columns": ["id", group, number], "rows": things}
        ]
        if self.tables == 2:
            columns = [f"{thing}_id", amount]
            tables.append({"name": event, "columns": columns, "rows": events})
        asked = draw.choice(("sum", "max", "min"))
        joined = self.tables == 2 and draw.random() < 0.5
        value = things[draw.choice(events)[0] - 1][1] if joined else draw.choice(things)[1]
        what = amount if joined else number
        source = f"{event} join {thing} on {thing}_id = id" if joined else thing
        query = f"select {asked}({what}) from {source} where {group} = '{value}'"
        rows, _ = looked_up(tables, query, 1)
        schema = " ".join(f"{each['name']}({','.join(each['columns'])})" for each in tables)
        facts = {"tables": tables, "query": query, "answer": str(rows[0][0]), "left": self.queries}
        return Posed(f"{schema}\n{asked} {what} {group}={value}", facts)

    def begin(self, facts: WorldFacts, seed: int) -> Situation:  # noqa: ARG002 - nothing is drawn
        """Ask; see `World.begin`."""
        state = {**facts, "read": ""}
        return Situation(state, (Ask(POLICY),), key=_key(state))

    def step_all(self, turns: Sequence[Said]) -> list[Situation]:
        """Run queries, many in a sandbox, and judge answers; see `Environment.step_all`."""
        queries = [_query_of(turn) for turn in turns]
        asked = [
            {"tables": turn.state["tables"], "query": query, "most_rows": _SHOWN_ROWS + 1}
            for turn, query in zip(turns, queries, strict=True)
            if query
        ]
        found = iter(_looked_up(asked))
        return [
            _told(turn.state, next(found)) if query else _judged(turn)
            for turn, query in zip(turns, queries, strict=True)
        ]

    def best_move(self, state: EpisodeState, role: str, draw: Random) -> str:  # noqa: ARG002
        """Query once, and say what was read; see `World.best_move`."""
        if state["read"] == "" and state["left"]:
            asked = {"tables": state["tables"], "query": state["query"]}
            asked["most_rows"] = _SHOWN_ROWS + 1
            # The one query that is run in this process: the world's own, by the same code.
            _known[json.dumps(asked)] = looked_up(**asked)
            while len(_known) > _MOST_KNOWN:
                _known.popitem(last=False)
            return str(state["query"])
        return str(state["read"])

    def random_move(self, state: EpisodeState, role: str, draw: Random) -> str:  # noqa: ARG002
        """Say any number; see `World.random_move`."""
        return str(draw.randint(1, 99 * len(state["tables"])))


def _query_of(turn: Said) -> str:
    """The query that was said; empty where it is an answer, as after the last query."""
    text = turn.acts[0].text.strip()
    is_query = text[:7].lower().split() == ["select"] and not turn.acts[0].cut
    return text if is_query and turn.state["left"] else ""


def _looked_up(asked: Sequence[Mapping[str, Any]]) -> list[Found | None]:
    """Answer queries in sandboxes; None where the machine has no room for one."""
    keys = [json.dumps(each) for each in asked]
    found: dict[str, Found | None] = {key: _known[key] for key in keys if key in _known}
    left = {key: each for key, each in zip(keys, asked, strict=True) if key not in found}
    portions = [[*left][at : at + _PER_PROGRAM] for at in range(0, len(left), _PER_PROGRAM)]
    again = []
    ends = run_fairly([_program([left[key] for key in portion]) for portion in portions])
    for portion, end in zip(portions, ends, strict=True):
        answers = _answers(end, len(portion))
        found |= dict(zip(portion, answers, strict=True))
        if answers[0] is None or answers[0][1] == _STOPPED:
            again += portion if len(portion) > 1 else []
    # One query that does not end well takes those along that share its sandbox.
    alone = run_fairly([_program([left[key]]) for key in again])
    found |= {key: _answers(end, 1)[0] for key, end in zip(again, alone, strict=True)}
    return [found[key] for key in keys]


_STOPPED = "stopped"


def _program(asked: Sequence[Mapping[str, Any]]) -> Program:
    source = Path(looked_up.__code__.co_filename).read_bytes()
    command, stdin = (sys.executable, "main.py"), json.dumps(asked).encode("utf-8")
    return Program(command, {"main.py": source}, stdin, _LIMITS)


def _answers(end: ProgramEnd | None, count: int) -> list[Found | None]:
    if end is None:
        return [None] * count
    if not end.ok:
        return [([], _STOPPED)] * count
    return [(rows, wrong) for rows, wrong in json.loads(end.output)]


def _told(state: EpisodeState, found: Found | None) -> Situation:
    """Let the policy read what its query gave."""
    if found is None:
        return Situation(state, failed="no room for a sandbox")
    rows, wrong = found
    lines = ["|".join(map(_cell, row))[:_SHOWN_CHARACTERS] for row in rows[:_SHOWN_ROWS]]
    lines += ["..."] * (len(rows) > _SHOWN_ROWS)
    text = wrong[:_SHOWN_CHARACTERS] or "\n".join(lines).strip() or "no rows"
    after = {**state, "left": state["left"] - 1, "read": text}
    facts = {"tool_errors": 1.0} if wrong else {}
    return Situation(after, (Ask(POLICY, (Told("user", text),)),), key=_key(after), facts=facts)


def _cell(value: Any) -> str:
    if value is None:
        return "null"
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def _judged(turn: Said) -> Situation:
    right = turn.acts[0].text.strip() == turn.state["answer"]
    return Situation(turn.state, earned={POLICY: 1.0} if right else {})


def _key(state: EpisodeState) -> str:
    return f"{state['left']}/{state['read']}"
