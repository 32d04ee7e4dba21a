"""Signals at random moments of `posttrain run`: is it one line, the right code, nothing left?

    python -m benchmarks.reliability.interrupts --times 100 [--local] [--out FILE]

A project of five short stages is run again and again; each run gets one of SIGINT, SIGTERM and
SIGHUP at a random moment of its life, half of them sent to the whole process group, as a terminal
does, the others to the command alone. Of each is asked: its exit code (128 + n), its standard error
(the one sentence beside the lines of the stages, no traceback, no stage called failed), whether it
ended within three seconds, whether a stage began afterwards, what ledger, MLflow and Prefect say of
it, and what is alive ten seconds later (Prefect's server closes its database, and MLflow's is made
to its end where there was none). Every tenth run is
started again and must come to its end without a second execution of what was done. A signal that
comes once the run has said that it is done may end the interpreter in its last moments, and one
that comes while the interpreter itself is starting finds no line of posttrain's yet: these are
counted apart.
"""

import argparse
import json
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil

from benchmarks.pipeline import project
from posttrain.provenance.ledger import Ledger, Run, StageRun, open_ledger

SENTENCE = "stopped; run the same command again to go on from here\n"
LAST_WORDS = " · done in "
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LIMIT_SECONDS = 3.0
_LATE_SECONDS = 0.3
"""A stage that begins this long after the signal was not begun yet when it came."""
_LEAVE_SECONDS = 10.0
_EVERY = 10
_STAGES = 5
_MOST_CHARS = 4000
# What stands on standard error beside the sentence: a line for each thing that a stage does.
_OF_A_STAGE = re.compile(r"s\d{4}: (running \(.*\)|ran in .*|restored|up to date|stopped)")
_SLOW = (
    "import time\n"
    "def run(config, inputs, outputs, context):\n"
    "    print('begins', time.time(), flush=True)\n"
    "    time.sleep(0.4)\n"
)


def main() -> None:
    """Run the trials and print a line for each, then the figures."""
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--times", type=int, default=100)
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
        group = draw.random() < 0.5
        trial = interrupted(command, root, asked, draw.uniform(0.15, span), group=group)
        if number % _EVERY == _EVERY - 1:
            trial["wrong"] += again(command, root)
        trials.append(trial)
        print(trial, flush=True)
    seconds = sorted(trial["seconds"] for trial in trials if not trial["over"])
    return {
        "figures": {
            "trials": times,
            "local": local,
            "seed": seed,
            "span_seconds": round(span, 1),
            "load": round(os.getloadavg()[0], 1),
            "in_time": sum(not trial["over"] and not trial["early"] for trial in trials),
            "before_it_began": sum(trial["early"] for trial in trials),
            "to_the_group": sum(trial["group"] for trial in trials),
            "median_seconds": seconds[len(seconds) // 2] if seconds else None,
            "longest_seconds": seconds[-1] if seconds else None,
            "wrong": [trial for trial in trials if trial["wrong"]],
            "next_run": _run(command, root),
        },
        "trials": trials,
    }


def interrupted(
    command: Sequence[str], root: Path, asked: int, after: float, *, group: bool = False
) -> dict[str, Any]:
    """One run, and what is wrong with how it took the signal. `over`: it was done before."""
    with (root / "said").open("w+", encoding="utf-8") as said_in:
        process = subprocess.Popen(
            command, cwd=root, env=_environment(), stderr=said_in, stdout=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        known: set[psutil.Process] = set()
        begun = time.monotonic()
        while (left := begun + after - time.monotonic()) > 0 and process.poll() is None:
            time.sleep(min(0.2, left))
            known.update(_below(process.pid))
        over = process.poll() is not None
        asked_at, clock = time.monotonic(), time.time()
        if not over:
            (os.killpg if group else os.kill)(process.pid, asked)
        wrong = []
        try:
            process.wait(120)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            wrong.append("it went on for two minutes")
        seconds = time.monotonic() - asked_at
        _settle(known)
        said = (root / "said").read_text(encoding="utf-8")
    over = over or (process.returncode == -asked and LAST_WORDS in said)
    early = process.returncode == -asked and not said
    early |= "KeyboardInterrupt" in said and "posttrain/" not in said
    # Where the signal came when all was done, it may succeed.
    if not over and not early and process.returncode:
        wrong += _wrong_words(process.returncode, asked, said)
        if seconds > LIMIT_SECONDS:
            wrong.append(f"it took {seconds:.1f} s")
    wrong += _wrong_records(root, begun_late=clock + _LATE_SECONDS)
    if alive := [each for each in known if _alive(each)]:
        wrong.append(f"left behind: {[' '.join(each.cmdline())[:80] for each in alive]}")
    return {
        "signal": signal.Signals(asked).name, "group": group, "after": round(after, 2),
        "over": over, "early": early, "code": process.returncode,
        "seconds": round(seconds, 2), "wrong": wrong,
    }  # fmt: skip


def again(command: Sequence[str], root: Path) -> list[str]:
    """Start an interrupted run again; what is wrong with how it goes on."""
    with closing(_ledger(root)) as ledger:
        before = ledger.runs(limit=1)
        done = {(each.stage, each.key) for each in _executed(ledger, before)}
    if code := _run(command, root):
        return [f"the same command again: exit code {code}"]
    with closing(_ledger(root)) as ledger:
        runs = [run for run in ledger.runs(limit=1) if run.id not in {each.id for each in before}]
        now = {(each.stage, each.key) for each in _executed(ledger, runs)}
    twice = sorted(stage for stage, _ in now & done)
    return [f"executed twice: {', '.join(twice)}"] if twice else []


def write(root: Path) -> None:
    """A project of five stages of 0.4 seconds."""
    project.write_ours(root, project.edges("chain", _STAGES))
    stage = root / "noop/stage.py"
    kept = stage.read_text().replace("def run(config, inputs, outputs, context):\n", "")
    stage.write_text(_SLOW + kept.replace("import json\n", "    import json\n"))


def label(root: Path, text: str) -> None:
    """Make every stage run again."""
    project.label_ours(root, dict.fromkeys(project.edges("chain", _STAGES), f"a{text}"))


def _wrong_words(code: int, asked: int, said: str) -> Iterator[str]:
    if code != 128 + asked:
        yield f"exit code {code}"
    others = said.replace(SENTENCE, "", 1).splitlines()
    odd = [line for line in others if not _OF_A_STAGE.fullmatch(line)]
    if odd or SENTENCE not in said:
        yield said[-_MOST_CHARS:]


def _wrong_records(root: Path, *, begun_late: float) -> Iterator[str]:
    """What ledger, MLflow, Prefect and logs say that is not so."""
    if (root / ".posttrain/ledger.db").is_file():
        with closing(_ledger(root)) as ledger:
            runs = Counter(run.status for run in ledger.runs())
            failed = [each.stage for each in ledger.every_stage_run() if each.status == "failed"]
        for status in ("running", "failed"):
            if runs[status]:
                yield f"{runs[status]} runs {status} in the ledger"
        if failed:
            yield f"failed in the ledger: {', '.join(failed)}"
    for file, table, column in (
        ("mlflow.db", "runs", "status"),
        ("prefect/prefect.db", "flow_run", "state_type"),
        ("prefect/prefect.db", "task_run", "state_type"),
    ):
        if found := _count(root / ".posttrain" / file, table, column):
            yield f"{found} of {file}'s {table} are called failed"
    for log in (root / ".posttrain/runs").glob("*/*.log"):
        for line in log.read_text(encoding="utf-8").splitlines():
            if line.startswith("begins") and float(line.split()[1]) > begun_late:
                yield f"{log.stem} began after the signal"


def _count(file: Path, table: str, column: str) -> int:
    if not file.is_file():
        return 0
    with closing(sqlite3.connect(file, timeout=30)) as database:
        # A run that was interrupted early may have made the file and no table yet.
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
        if table not in tables:
            return 0
        sql = f"SELECT count(*) FROM {table} WHERE {column}='FAILED'"
        return int(database.execute(sql).fetchone()[0])


def _executed(ledger: Ledger, runs: Sequence[Run]) -> list[StageRun]:
    found = [each for run in runs for each in ledger.stage_runs(run.id)]
    return [each for each in found if each.status == "succeeded"]


def _ledger(root: Path) -> Ledger:
    return open_ledger(root / ".posttrain/ledger.db")


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


def _settle(known: Collection[psutil.Process]) -> None:
    deadline = time.monotonic() + _LEAVE_SECONDS
    while any(map(_alive, known)) and time.monotonic() < deadline:
        time.sleep(0.1)


def _alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


if __name__ == "__main__":
    main()
