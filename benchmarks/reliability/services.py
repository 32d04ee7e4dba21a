"""What `posttrain up` costs: seconds until it is ready, memory, idle, and a tick that does nothing.

    python -m benchmarks.reliability.services [--minutes 4] [--out services.json]

A fresh project of two short stages with a schedule of each minute that runs only where something
moved. After the first run nothing moves: what the ticks of some minutes cost is the processor's
time of all services, their children and what those had, less that of as many minutes under a pause.
Memory is the proportional share (PSS), so that pages that processes share count once.
"""

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

import psutil

from benchmarks.reliability import schedules
from posttrain.operations.services.plan import FOLDER, NAMES
from posttrain.operations.services.process import alive
from posttrain.operations.services.supervisor import SUPERVISOR

_MINUTE = 60.0
_AT_REST = 25.0
_RECIPE = "schedules:\n  each: {cron: '* * * * *', only_if_moved: true}\n"


def main() -> None:
    """Bring a project up, measure, and print the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=int, default=4, help="with ticks, and again without")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(Path(folder) / "p", options.minutes)
    print(json.dumps(figures, indent=1))
    if options.out:
        options.out.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


def measure(root: Path, minutes: int) -> dict[str, object]:
    """Bring a new project at `root` up and measure it for twice so many minutes."""
    schedules.write(root, _RECIPE)
    ports = ("--prefect-port", str(schedules.free_port()))
    ports += ("--mlflow-port", str(schedules.free_port()))
    loads = [os.getloadavg()[0]]
    try:
        began = time.monotonic()
        schedules.bring_up(root, ("--detach", *ports))
        ready = time.monotonic() - began
        time.sleep(_AT_REST)
        memory = {name: _mebibytes(tree) for name, tree in _trees(root).items()}
        schedules.wait(lambda: _unchanged(root) > 0, 300)
        with_ticks, ticks = _cpu_of(root, minutes)
        schedules.posttrain(root, "schedule", "pause", schedules.NAME)
        schedules.wait(lambda: not _at_work(root), 60)
        idle, none = _cpu_of(root, minutes)
        if none or not ticks:
            raise SystemExit(f"{ticks} ticks while they were due, {none} under the pause")
        loads.append(os.getloadavg()[0])
        seconds = minutes * _MINUTE
        return {
            "ready_seconds": round(ready, 1),
            "memory_mebibytes": round(sum(memory.values())),
            "memory_by_service": {name: round(size) for name, size in memory.items()},
            "idle_share_of_a_core": round(sum(idle.values()) / seconds, 4),
            "idle_by_service": {name: round(cpu / seconds, 4) for name, cpu in idle.items()},
            "minutes": minutes,
            "ticks": ticks,
            "cpu_seconds_of_a_tick": round(
                (sum(with_ticks.values()) - sum(idle.values())) / ticks, 2
            ),
            "load": [round(load, 1) for load in loads],
        }
    finally:
        schedules.posttrain(root, "down")


def _cpu_of(root: Path, minutes: int) -> tuple[dict[str, float], int]:
    """Seconds of the processor by service in the next minutes, and the ticks among them."""
    before, known = _cpu(root), _unchanged(root)
    time.sleep(minutes * _MINUTE)
    after = _cpu(root)
    return {name: after[name] - before[name] for name in before}, _unchanged(root) - known


def _cpu(root: Path) -> dict[str, float]:
    return {name: sum(_spent(each) for each in tree) for name, tree in _trees(root).items()}


def _spent(process: psutil.Process) -> float:
    """Of the process itself and of its children that are no more."""
    times = process.cpu_times()
    return float(times.user + times.system + times.children_user + times.children_system)


def _mebibytes(tree: list[psutil.Process]) -> float:
    return sum(each.memory_full_info().pss for each in tree) / 2**20


def _trees(root: Path) -> dict[str, list[psutil.Process]]:
    """The processes of each service; those of one that another started count with themselves."""
    heads = {name: alive(root / FOLDER, name) for name in (*NAMES, SUPERVISOR)}
    taken = set(heads.values())
    trees = {}
    for name, pid in heads.items():
        if pid is None:
            raise SystemExit(f"{name} is not there")
        head = psutil.Process(pid)
        below = [] if name == SUPERVISOR else head.children(recursive=True)
        trees[name] = [head, *(each for each in below if each.pid not in taken)]
    return trees


def _unchanged(root: Path) -> int:
    return sum(tick.status == "unchanged" for tick in schedules.ticks_of(root))


def _at_work(root: Path) -> bool:
    return any(not tick.over for tick in schedules.ticks_of(root))


if __name__ == "__main__":
    main()
