"""The peaks that `posttrain plan --memory` counts, held against measured ones.

    python -m benchmarks.learner.plan_memory [--only CASE] [--how HOW] [--json PATH]

Every measurement is a process of its own (two of them for `fsdp`) that runs a stage for two steps,
and is made twice. `tensors` is the most that torch's allocator had handed out at a time, as its
profiler counts it: on a GPU that is `torch.cuda.max_memory_allocated`, what a card has to hold.
`process` is the kernel's high-water mark above what stood before the model was loaded, where freed
blocks go back at once, and a tiny model has been trained before, so that libraries are in place; it
has the rows and what Python allocates in it too.
"""

import argparse
import ctypes
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.learner.memory import reset_peak, status
from benchmarks.learner.plan_memory_cases import CASES, PROMPT, config_of, prepare, run, warm_up
from benchmarks.sampling.machine import described

HOWS = ("tensors", "process")
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def main() -> None:
    """Measure every case, or one of them where this is a child."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", choices=CASES)
    parser.add_argument("--how", choices=HOWS, help="only measure so; the rest stays as it is")
    parser.add_argument("--json", type=Path, default=Path(__file__).with_suffix(".json"))
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child:
        folder, name, how = chosen.child
        print(json.dumps(measure(Path(folder), name, how)))
        return
    again = chosen.only or chosen.how
    found = json.loads(chosen.json.read_text())["cases"] if again else {}
    with TemporaryDirectory() as folder:
        prepare(Path(folder))
        for name in [chosen.only] if chosen.only else CASES:
            found[name] = found.get(name, {}) | counted(Path(folder), name)
            for how in [chosen.how] if chosen.how else HOWS:
                found[name][how] = max(in_children(folder, name, how))
            print(line(name, found[name]), flush=True)
    report = {
        "machine": described(1),
        "cases": {name: found[name] for name in CASES if name in found},
    }
    chosen.json.write_text(json.dumps(report, indent=1, sort_keys=True) + "\n")


def counted(folder: Path, name: str) -> dict[str, Any]:
    """What the plan says of a case."""
    from posttrain.learning.memory.asked import StageQuestion
    from posttrain.learning.memory.peak import peak_of
    from posttrain.learning.memory.shapes import read_shapes
    from posttrain.learning.memory.stages import TASKS

    _, config = config_of(name)
    asked = StageQuestion(
        config,
        read_shapes(folder / "policy"),
        processes=CASES[name].processes,
        prompt_tokens=PROMPT,
    )
    peak = peak_of(TASKS[CASES[name].stage](asked))
    parts = {part: count for part, count in peak.parts.items() if count}
    return {"counted": peak.total, "moment": peak.name, "parts": parts}


def in_children(folder: str, name: str, how: str) -> list[int]:
    """Measure in as many processes as a case has; the peak of each, in bytes."""
    processes = CASES[name].processes
    shared = {"OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port())}
    command = [sys.executable, "-m", "benchmarks.learner.plan_memory", "--child", folder, name, how]
    children = [
        subprocess.Popen(
            command,
            env={**os.environ, **shared, "RANK": str(rank), "WORLD_SIZE": str(processes)},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for rank in range(processes)
    ]
    told = [child.communicate()[0] for child in children]
    return [json.loads(each.splitlines()[-1]) for each in told]


def measure(folder: Path, name: str, how: str) -> int:
    """Run a case in this process, and return its peak in bytes."""
    import torch

    torch.set_num_threads(1)
    library = ctypes.CDLL(None)
    # A threshold that is set does not grow by what was freed, as glibc's otherwise does.
    library.mallopt(_M_MMAP_THRESHOLD, 2**16)
    library.mallopt(_M_TRIM_THRESHOLD, 0)
    warm_up(folder, name)
    return MEASURES[how](lambda: _run(folder, name))


def _run(folder: Path, name: str) -> None:
    if CASES[name].processes == 1:
        run(folder, name)
        return
    from posttrain.learning.models.distributed.group import Dismissed, open_group

    open_group("cpu")
    # All but the main process are done when they have trained.
    with suppress(Dismissed):
        run(folder, name)


def by_tensors(work: Callable[[], None]) -> int:
    """The most bytes of torch's allocator that were in use at a time."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        work()
    events = profiler.profiler.kineto_results.events()
    moves = sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
    held = peak = 0
    for _, moved in moves:
        held += moved
        peak = max(peak, held)
    return peak


def _by_process(work: Callable[[], None]) -> int:
    """The high-water mark of the process above what it held before."""
    before = reset_peak()
    work()
    return status("VmHWM") - before


MEASURES = {"tensors": by_tensors, "process": _by_process}


def line(name: str, case: dict[str, Any]) -> str:
    """A row of the README's table."""
    cells = [f"{case['counted'] / 1e6:.0f}"]
    for how in HOWS:
        if how not in case:
            cells += ["", ""]
            continue
        error = case["counted"] / case[how] - 1
        cells += [f"{case[how] / 1e6:.0f}", f"{100 * error:+.1f}%"]
    return f"| {name} | {' | '.join(cells)} | {case['moment']} |"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    main()
