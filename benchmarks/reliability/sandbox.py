"""The sandbox: what a start costs, which escapes it contains, and what many runs leave behind.

    python -m benchmarks.reliability.sandbox [--runs 10000] [--out sandbox.json]
    python -m benchmarks.reliability.sandbox --episodes

The second plays the escapes as turns of episodes in the environment `python`, and nothing else
(sandbox_episodes.json).

A cold run starts a sandbox and runs a program in it; a warm one finds a sandbox that was started
while something else was done. `print(1)` in Python is the program, the start of an interpreter
beside it the part that no sandbox costs. The runs that are counted are of eight kinds, with ends of
every sort; what this process and all below it have open, orphans too, is counted after the first
hundred and after the last.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from benchmarks.reliability.escapes import ESCAPES
from benchmarks.reliability.escapes.attempts import (
    Held,
    achieved,
    adopt_orphans,
    held_now,
    outside,
    program_of,
    surroundings,
)
from benchmarks.reliability.escapes.episodes import attempts
from benchmarks.sampling.machine import described
from posttrain.backends.sandbox.launch import Sandbox
from posttrain.backends.sandbox.pool import SandboxPool
from posttrain.backends.sandbox.program import Program, ProgramLimits

_TIMED, _FIRST, _BATCH = 40, 100, 100
_SHORT = ProgramLimits(seconds=0.2, memory_bytes=256 << 20)
_PRINT = Program.of("python", "print(1)")
_KINDS = (
    _PRINT,
    Program.of("python", "import sys; sys.exit(3)"),
    Program.of("shell", "echo $$; kill -9 $$"),
    Program.of("shell", "sleep 60 & echo left"),
    Program.of("shell", "sleep 60", limits=_SHORT),
    Program.of("python", "import os\nwhile True: os.fork()", limits=_SHORT),
    Program.of("python", "while True: print('x' * 1000)", limits=_SHORT),
    Program.of("python", "open('x', 'wb').write(bytes(20 << 20))"),
)


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--episodes", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    out = options.out or Path(__file__).with_name(
        "sandbox_episodes.json" if options.episodes else "sandbox.json"
    )
    with tempfile.TemporaryDirectory() as folder:
        # Files that others make meanwhile are none of ours.
        tempfile.tempdir = folder
        found = _in_episodes() if options.episodes else _measured(options.runs)
    _write({"machine": described(threads=1), **found}, out)


def _measured(runs: int) -> dict[str, object]:
    return {**_costs(), **_escapes(), **_leaks(runs)}


def _in_episodes() -> dict[str, object]:
    adopt_orphans()
    with surroundings() as around:
        before = held_now()
        tried = attempts(ESCAPES, around)
        after = held_now()
    return {
        "escapes in episodes": len(tried),
        "contained": sum(not each.achieved for each in tried),
        "not contained": [
            f"{each.escape.name}: {each.achieved}" for each in tried if each.achieved
        ],
        "how they ended": dict(Counter(each.end.how for each in tried)),
        "held before": asdict(before),
        "held after": asdict(after),
    }


def _write(found: Mapping[str, object], out: Path) -> None:
    out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps({name: value for name, value in found.items() if name != "machine"}, indent=1))


def _costs() -> dict[str, object]:
    starts, cold, warm, bare = [], [], [], []
    for _ in range(_TIMED):
        begun = time.perf_counter()
        sandbox = Sandbox()
        sandbox.wait()
        starts.append(time.perf_counter() - begun)
        sandbox.run(_PRINT)
        cold.append(time.perf_counter() - begun)
        begun = time.perf_counter()
        subprocess.run([sys.executable, "-c", "print(1)"], capture_output=True, check=True)
        bare.append(time.perf_counter() - begun)
    with SandboxPool(1) as pool:
        pool.run_all([_PRINT])
        for _ in range(_TIMED):
            time.sleep(0.1)
            begun = time.perf_counter()
            pool.run_all([_PRINT])
            warm.append(time.perf_counter() - begun)
    with SandboxPool() as pool:
        begun = time.perf_counter()
        pool.run_all([_PRINT] * 200)
        each = (time.perf_counter() - begun) / 200
        at_once = pool.at_once
    figures = {"start": starts, "cold run": cold, "warm run": warm, "interpreter alone": bare}
    told: dict[str, object] = {
        f"{name}, ms": round(1000 * statistics.median(seconds), 1)
        for name, seconds in figures.items()
    }
    return {**told, "ms per run of many": round(1000 * each, 1), "at once": at_once}


def _escapes() -> dict[str, object]:
    with surroundings() as around, SandboxPool() as pool:
        ends = pool.run_all([program_of(each, around) for each in ESCAPES])
        said = [achieved(each, end, around) for each, end in zip(ESCAPES, ends, strict=True)]
        harmless = [each for each in ESCAPES if each.outside]
        return {
            "escapes": len(ESCAPES),
            "contained": said.count(""),
            "not contained": [
                f"{each.name}: {why}" for each, why in zip(ESCAPES, said, strict=True) if why
            ],
            "how they ended": dict(Counter(end.how for end in ends)),
            "succeed without a sandbox": sum(outside(each, around) for each in harmless),
            "expected to": len(harmless),
        }


def _leaks(runs: int) -> dict[str, object]:
    hows: Counter[str] = Counter()
    adopt_orphans()
    before = _run(_FIRST, hows)
    begun = time.perf_counter()
    after = _run(runs - _FIRST, hows)
    return {
        "runs": sum(hows.values()),
        "how runs ended": dict(hows),
        "minutes": round((time.perf_counter() - begun) / 60, 1),
        "held after 100 runs": asdict(before),
        "held after all": asdict(after),
        "leaks": {
            name: value - asdict(before)[name]
            for name, value in asdict(after).items()
            if value > asdict(before)[name]
        },
    }


def _run(runs: int, hows: Counter[str]) -> Held:
    with SandboxPool() as pool:
        for first in range(0, runs, _BATCH):
            chosen = [_KINDS[i % len(_KINDS)] for i in range(first, min(first + _BATCH, runs))]
            hows.update(end.how for end in pool.run_all(chosen))
    return held_now()


if __name__ == "__main__":
    main()
