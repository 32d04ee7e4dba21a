"""Episodes that hold things outside of a plain value: what many of them leave behind.

    python -m benchmarks.reliability.episodes [--episodes 10000] [--minutes 30]

Plays, a hundred side by side, every environment and world that asks for the sandbox, or for a
program, or frees something when it is closed. Of the moves some are the script's and some are rude:
programs that fork, sleep, write files and end their sandbox, queries that are huge or wrong. What
this process and all below it have open, orphans too, is counted after the first hundred episodes of
each and after the last. Stops at its minutes, and then says how many were played.
"""

import argparse
import json
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.reliability.escapes.attempts import adopt_orphans, commands_below, held_now
from benchmarks.sampling.machine import described
from posttrain.data.schemas import Problem
from posttrain.learning.episodes.environments.base import (
    Act,
    Environment,
    EpisodeState,
    Said,
    Situation,
)
from posttrain.learning.episodes.posed import lacking, posed_problem
from posttrain.learning.episodes.registry import EPISODE_ENVIRONMENTS
from posttrain.learning.episodes.worlds.base import World

_BATCH, _MOST_TURNS = 100, 20
_RUDE_RATE = 0.3
_SETTINGS: Mapping[str, Mapping[str, Any]] = {"python": {"seconds": 0.5}}
_SHARES: Mapping[str, int] = {"sql": 3}
"""How many times as many episodes as others a kind has whose episodes take least."""
_PROGRAMS = (
    "print(1)",
    "import sys; sys.exit(3)",
    "import os; os.kill(os.getpid(), 9)",
    "import subprocess; subprocess.Popen(['sleep', '60']); print('left')",
    "import time; time.sleep(60)",
    "import os\nwhile True: os.fork()",
    "while True: print('x' * 1000)",
    "open('x', 'wb').write(bytes(20 << 20))",
)
_RUDE: Mapping[str, Sequence[str]] = {
    "python": [f"```python\n{program}\n```" for program in _PROGRAMS],
    "sql": [
        "select count(*) from sqlite_master a, sqlite_master b",
        "select replace(1, 1, group_concat(1)) || upper(null)",
        "select group_concat(substr(1, 2, 3)), nothing",
        "select 1; drop table item",
        "select readfile('/etc/passwd')",
    ],
    "repair": [
        "set a.py 3 import os; os._exit(0)",
        "set test.py 1 import os; os.fork()",
        "set test.py 2 open('kept', 'w').write('x' * 10 ** 6)",
        "set test.py 1 import subprocess; subprocess.Popen(['sleep', '60'])",
    ],
}


def main() -> None:
    """Play, count, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=10_000)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument(
        "--settle",
        type=float,
        default=200.0,
        help="seconds before the first count: Chromium starts one more service of its own after"
        " three minutes",
    )
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        # Files that others make meanwhile are none of ours.
        tempfile.tempdir = folder
        adopt_orphans()
        found = counted(holding(), options.episodes, options.minutes * 60, settle=options.settle)
    found["not measured"] = _absent()
    options.out.write_text(json.dumps({"machine": described(threads=1), **found}, indent=1) + "\n")
    print(json.dumps(found, indent=1))


def counted(
    environments: Sequence[Environment], episodes: int, seconds: float, *, settle: float = 0.0
) -> dict[str, Any]:
    """Play and count.

    Args:
        environments: What is played.
        episodes: How many in all.
        seconds: After these no further hundred is begun.
        settle: Seconds between the first hundred of each and the count of what they hold.

    Returns:
        How many were played of each kind, how they ended, what was held before and after.

    """
    ends: Counter[str] = Counter()
    played: Counter[str] = Counter()
    for environment in environments:
        _play(environment, min(_BATCH, episodes), 0, ends, played)
    time.sleep(settle)
    before, ran, begun = held_now(), commands_below(), time.perf_counter()
    shares = [_SHARES.get(each.kind, 1) for each in environments]
    left = [
        max(0, episodes * share // sum(shares) - played[each.kind])
        for each, share in zip(environments, shares, strict=True)
    ]
    while any(left) and time.perf_counter() - begun < seconds:
        for place, environment in enumerate(environments):
            now = min(_BATCH, left[place])
            _play(environment, now, played[environment.kind], ends, played)
            left[place] -= now
    after = held_now()
    return {
        "episodes": sum(played.values()),
        "of": dict(played),
        "how they ended": dict(ends),
        "minutes": round((time.perf_counter() - begun) / 60, 1),
        "held after the first": asdict(before),
        "held after all": asdict(after),
        "processes after the first": ran,
        "processes after all": commands_below(),
        "leaks": {
            name: value - asdict(before)[name]
            for name, value in asdict(after).items()
            if value > asdict(before)[name]
        },
    }


def holding() -> list[Environment]:
    """Environments that hold something outside of a plain value, and can be had here."""
    return [
        EPISODE_ENVIRONMENTS.parse({"kind": kind, **_SETTINGS.get(kind, {})})
        for kind, part in EPISODE_ENVIRONMENTS.parts.items()
        # One that needs more than its kind, such as an address, is somebody else's to count.
        if _holds(part) and not lacking(part) and not _asks_more(part)
    ]


def _asks_more(part: type[Environment]) -> bool:
    fields = {n for n, field in part.model_fields.items() if field.is_required()}
    return bool(fields - {"kind"}) and part.model_fields["kind"].default not in _SETTINGS


def _holds(part: type[Environment]) -> bool:
    return bool(part.PROGRAMS) or part.close is not Environment.close


def _absent() -> dict[str, str]:
    parts = {kind: part for kind, part in EPISODE_ENVIRONMENTS.parts.items() if _holds(part)}
    return {kind: lacking(part)[0].what for kind, part in parts.items() if lacking(part)}


def _play(
    environment: Environment, number: int, first: int, ends: Counter[str], played: Counter[str]
) -> None:
    """Play some episodes side by side, and close them."""
    draw = Random(f"{environment.kind}/{first}")
    situations = [
        environment.start(_problem(environment, first + place), first + place)
        for place in range(number)
    ]
    for turn in range(_MOST_TURNS):
        going = [place for place, each in enumerate(situations) if each.asks]
        said = [
            Said(situations[place].state, _acts(environment, situations[place], draw), turn)
            for place in going
        ]
        for place, situation in zip(going, environment.step_all(said), strict=True):
            situations[place] = situation
    for situation in situations:
        environment.close(situation.state)
        ends["failed" if situation.failed else "turns" if situation.asks else "over"] += 1
    played[environment.kind] += number


def _problem(environment: Environment, seed: int) -> Problem:
    if isinstance(environment, World):
        return posed_problem(environment, seed)
    return Problem(environment.kind, "6 * 7 =", "42", 1, "exact")


def _acts(environment: Environment, situation: Situation, draw: Random) -> list[Act]:
    return [
        Act(ask.role, _text(environment, situation.state, ask.role, draw)) for ask in situation.asks
    ]


def _text(environment: Environment, state: EpisodeState, role: str, draw: Random) -> str:
    rude = _RUDE.get(environment.kind, ())
    if rude and draw.random() < _RUDE_RATE:
        return draw.choice(rude)
    if not isinstance(environment, World):
        return "42" if draw.random() < 0.5 else "```\nprint(6 * 7)\n```"
    move = environment.best_move if draw.random() < 0.7 else environment.random_move
    return move(state, role, draw)


if __name__ == "__main__":
    main()
