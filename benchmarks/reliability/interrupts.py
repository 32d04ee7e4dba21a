"""Signals at random moments of `posttrain run`: is it one sentence, the right code, nothing left?

    python -m benchmarks.reliability.interrupts --times 21 [--local] [--out FILE]

A project of five short stages is run again and again; each run gets one of SIGINT, SIGTERM and
SIGHUP at a random moment of its life. Of each is asked: its exit code (128 + n), its
standard error (the one sentence, no traceback), how long it went on, whether the ledger still has
a run as running, and what is alive a second later. The last run must come to its end. A signal that
comes once the run has said that it is done may end the interpreter in its last moments.
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
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from benchmarks.pipeline import project

SENTENCE = "stopped; run the same command again to go on from here\n"
LAST_WORDS = " · done in "
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SLOW = "import time\ndef run(config, inputs, outputs, context):\n    time.sleep(0.4)\n"


def main() -> None:
    """Run the trials and print a line for each, then the figures."""
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--times", type=int, default=21)
    options.add_argument("--local", action="store_true", help="without Prefect")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--span", type=float, help="seconds [default: those of a whole run]")
    options.add_argument("--out", type=Path)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(
            Path(folder) / "p", given.times, local=given.local, seed=given.seed, span=given.span
        )
    print(json.dumps(figures["figures"], indent=1))
    if given.out:
        given.out.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    if figures["figures"]["wrong"]:
        sys.exit(1)


def measure(
    root: Path, times: int, *, local: bool, seed: int = 0, span: float | None = None
) -> dict[str, Any]:
    """Interrupt `times` runs of a new project at `root`; `span` bounds the moments."""
    write(root)
    draw = random.Random(seed)
    command = [sys.executable, "-m", "posttrain", "run", *["--local"] * local]
    if span is None:
        begun = time.monotonic()
        assert _run(command, root) == 0
        span = time.monotonic() - begun
    trials = []
    for number in range(times):
        asked = SIGNALS[number % len(SIGNALS)]
        label(root, str(number))
        trials.append(interrupted(command, root, asked, draw.uniform(0.15, span)))
        print(trials[-1], flush=True)
    return {
        "figures": {
            "trials": times,
            "span_seconds": round(span, 1),
            "load": os.getloadavg()[0],
            "in_time": sum(not trial["over"] for trial in trials),
            "longest_seconds": max(trial["seconds"] for trial in trials),
            "wrong": [trial for trial in trials if trial["wrong"]],
            "next_run": _run(command, root),
        },
        "trials": trials,
    }


def interrupted(command: Sequence[str], root: Path, asked: int, after: float) -> dict[str, Any]:
    """One run, and what is wrong with how it took the signal. `over`: it was done before."""
    process = subprocess.Popen(
        command, cwd=root, env=_environment(), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL,
        text=True, start_new_session=True,
    )  # fmt: skip
    known: set[psutil.Process] = set()
    begun = time.monotonic()
    while (left := begun + after - time.monotonic()) > 0 and process.poll() is None:
        time.sleep(min(0.2, left))
        known.update(_below(process.pid))
    over = process.poll() is not None
    asked_at = time.monotonic()
    process.send_signal(asked)
    try:
        said = process.communicate(timeout=120)[1]
    except subprocess.TimeoutExpired:
        process.kill()
        said = process.communicate()[1] + "it went on for two minutes"
    seconds = time.monotonic() - asked_at
    time.sleep(1)
    wrong = []
    over = over or (process.returncode == -asked and LAST_WORDS in said)
    if not over and process.returncode not in (128 + asked, 0):
        wrong.append(f"exit code {process.returncode}")
    if not over and process.returncode and (said.count(SENTENCE) != 1 or "Traceback" in said):
        wrong.append(said[-600:])
    if running := _running(root):
        wrong.append(f"{running} runs still running in the ledger")
    if alive := [each for each in known if _alive(each)]:
        wrong.append(f"left behind: {[' '.join(each.cmdline())[:80] for each in alive]}")
    return {
        "signal": signal.Signals(asked).name, "after": round(after, 2), "over": over,
        "code": process.returncode, "seconds": round(seconds, 2), "wrong": wrong,
    }  # fmt: skip


def write(root: Path) -> None:
    """A project of five stages of 0.4 seconds."""
    project.write_ours(root, project.edges("chain", 5))
    stage = root / "noop/stage.py"
    kept = stage.read_text().replace("def run(config, inputs, outputs, context):\n", "")
    stage.write_text(_SLOW + kept.replace("import json\n", "    import json\n"))


def label(root: Path, text: str) -> None:
    """Make every stage run again."""
    project.label_ours(root, dict.fromkeys(project.edges("chain", 5), f"a{text}"))


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    return {
        **kept,
        "PYTHONPATH": os.pathsep.join([str(Path.cwd()), os.environ.get("PYTHONPATH", "")]),
    }


def _run(command: Sequence[str], root: Path) -> int:
    return subprocess.run(
        command, cwd=root, env=_environment(), capture_output=True, check=False
    ).returncode


def _below(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def _running(root: Path) -> int:
    ledger = root / ".posttrain/ledger.db"
    if not ledger.is_file():
        return 0
    with sqlite3.connect(ledger) as database:
        # A run that was interrupted early may have made the file and no table yet.
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
        return sum(
            database.execute(f"SELECT count(*) FROM {table} WHERE status = 'running'").fetchone()[0]
            for table in tables & {"runs", "stage_runs"}
        )


if __name__ == "__main__":
    main()
