"""Kills at random instants of a schedule of each minute: is a run lost, doubled, or told falsely?

    python -m benchmarks.reliability.schedules --kills 40 [--seed 0] [--pause 20] [--out FILE]

A project with one recipe of two short stages and one schedule (`* * * * *`) is brought up by
`posttrain up`, servers and all. Again and again one of its processes is killed (SIGKILL): the
worker, the process of a run, Prefect's server, the supervisor (then `posttrain up` is called
again). Afterwards it is left alone until nothing waits, and each minute of the time is looked up in
the notes:

lost      a minute without a note, or one that ended other than succeeded
doubled   a minute that succeeded twice, or two runs of the ledger at one time
false     a reason other than the kill for an attempt that ended
"""

import argparse
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from benchmarks.pipeline import project
from posttrain.operations.schedule.notes import Tick, open_notes
from posttrain.operations.services.plan import FOLDER
from posttrain.operations.services.process import alive

NAME = "each"
TARGETS = ("worker", "child", "prefect", "supervisor")
_RECIPE = "schedules:\n  each: {cron: '* * * * *', retries: 3, retry_seconds: 1}\n"
_MINUTE = 60.0
# What a kill leads to, as the notes say it.
_TRUE = (
    "gone",
    "killed",
    "ended without a word",
    "crashed",
    "stopped with the worker",
    "heartbeat",
)


def main() -> None:
    """Kill, wait, look, and print the figures."""
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--kills", type=int, default=40)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--pause", type=float, default=20.0, help="mean seconds between kills")
    options.add_argument("--settle", type=float, default=300.0, help="seconds to come to rest")
    options.add_argument("--out", type=Path)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(
            Path(folder) / "p", given.kills, given.seed, given.pause, settle=given.settle, say=print
        )
    print(json.dumps(figures, indent=1))
    if given.out:
        given.out.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    sys.exit(1 if figures["lost"] or figures["doubled"] or figures["false"] else 0)


def measure(
    root: Path, kills: int, seed: int, pause: float, *, settle: float, say: Callable[..., None]
) -> dict[str, Any]:
    """Bring a new project at `root` up, kill `kills` times, and judge what the notes say."""
    write(root)
    draw = random.Random(seed)
    options = ("--detach", "--prefect-port", str(free_port()), "--mlflow-port", str(free_port()))
    loads = [os.getloadavg()[0]]
    done: list[tuple[float, str]] = []
    try:
        bring_up(root, options)
        first = time.time()
        wait(lambda: bool(_succeeded(root)), 300)
        while len(done) < kills:
            time.sleep(draw.uniform(0, 2 * pause))
            target = draw.choice(TARGETS)
            if _kill(root, target):
                done.append((time.time(), target))
                say(f"{len(done)}: {target} at {time.strftime('%H:%M:%S')}", flush=True)
            if target == "supervisor":
                time.sleep(draw.uniform(0, 10))
                bring_up(root, options)
        last = time.time()
        loads.append(os.getloadavg()[0])
        rested = wait(lambda: _settled(root, last), settle)
        return {
            "kills": dict(Counter(target for _, target in done)), "load": loads, "seed": seed,
            "minutes": int(last // _MINUTE - first // _MINUTE), "at_rest": rested,
            **judged(ticks_of(root), _overlaps(root), first, last, at_rest=rested),
        }  # fmt: skip
    finally:
        posttrain(root, "down")


def judged(
    ticks: list[Tick], overlaps: int, first: float, last: float, *, at_rest: bool = True
) -> dict[str, Any]:
    """Lost and doubled minutes between two instants, and attempts with a reason that is not so."""
    known = {tick.due: tick for tick in ticks if tick.kind == "scheduled"}
    start = (int(first // _MINUTE) + 1) * int(_MINUTE)
    minutes = range(start, int(last), int(_MINUTE))
    lost = []
    for due in minutes:
        tick = known.get(float(due))
        if tick is None or (tick.status != "succeeded" and (at_rest or tick.over)):
            lost.append({"due": due, "status": tick.status if tick else None,
                         "why": tick.reason if tick else "no note"})  # fmt: skip
    told = [line for tick in ticks for _, line in tick.story]
    ended = [line for line in told if line.startswith(("failed:", "crashed:"))]
    twice = [
        tick.due
        for tick in ticks
        if sum(line.startswith("succeeded") for _, line in tick.story) > 1
    ]
    return {
        "due": len(minutes), "succeeded": sum(t.status == "succeeded" for t in known.values()),
        "attempts_that_ended": len(ended), "lost": lost,
        "doubled": [*twice, *["overlap"] * overlaps],
        "false": [line for line in ended if not any(true in line for true in _TRUE)],
    }  # fmt: skip


def write(root: Path, schedule: str = _RECIPE) -> None:
    """A committed project of two stages with its schedule."""
    project.write_ours(root, project.edges("chain", 2))
    recipe = root / "recipe.yaml"
    recipe.write_text(recipe.read_text() + schedule)
    identity = ["-c", "user.name=b", "-c", "user.email=b@b"]
    for words in (["add", "-A"], ["commit", "-qm", "one"]):
        subprocess.run(["git", *identity, *words], cwd=root, check=True)


def bring_up(root: Path, options: tuple[str, ...]) -> None:
    """Call `posttrain up`, three times at most."""
    for _ in range(3):
        if posttrain(root, "up", *options) == 0:
            return
    raise SystemExit((root / FOLDER / "supervisor.log").read_text()[-2000:])


def posttrain(root: Path, *words: str) -> int:
    """Run a command in the project; its exit code."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PREFECT_", "MLFLOW_", "POSTTRAIN_"))
    }
    path = os.pathsep.join([str(Path.cwd()), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-m", "posttrain", *words], cwd=root, env={**kept, "PYTHONPATH": path},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False,
    ).returncode  # fmt: skip


def _kill(root: Path, target: str) -> bool:
    """Kill the process that is meant, if it is there."""
    name = "worker" if target == "child" else target
    pid = alive(root / FOLDER, name)
    if pid is not None and target == "child":
        below = psutil.Process(pid).children()
        pid = below[0].pid if below else None
    if pid is None:
        return False
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def ticks_of(root: Path) -> list[Tick]:
    """Read all notes of the schedule."""
    with open_notes(root) as notes:
        return notes.history(NAME, limit=10_000)


def _succeeded(root: Path) -> list[Tick]:
    return [tick for tick in ticks_of(root) if tick.status == "succeeded"]


def _settled(root: Path, last: float) -> bool:
    return all(tick.over for tick in ticks_of(root) if tick.due <= last) and bool(
        [tick for tick in _succeeded(root) if tick.due > last - _MINUTE]
    )


def _overlaps(root: Path) -> int:
    """Pairs of runs in the ledger that were under way at one time."""
    with sqlite3.connect(root / ".posttrain/ledger.db") as ledger:
        rows = ledger.execute(
            "SELECT started, ended FROM runs WHERE status = 'succeeded' ORDER BY started"
        ).fetchall()
    return sum(after[0] < before[1] for before, after in zip(rows, rows[1:], strict=False))


def wait(condition: Callable[[], bool], seconds: float) -> bool:
    """Wait for a condition; False where it does not come in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(1)
    return False


def free_port() -> int:
    """A port of loopback on which nothing listens."""
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    main()
