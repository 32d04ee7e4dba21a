"""What a project of ten trivial stages costs, which is what people have: ours beside DVC.

    python -m benchmarks.pipeline.small --stages 10 --pairs 5 --out small.json

Every figure is a whole command from the shell. Contestants take turns, in another order each time;
medians of seconds of wall time and of processor time (with all processes that ended), and the
median over pairs of the ratio to `dvc repro`. `first stage` is the time from the command to the
moment at which the first stage's record begins. Looks at a ready project stand at the end.
"""

import argparse
import json
import os
import resource
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.pipeline import project
from benchmarks.pipeline.machine import described
from posttrain.cli.main import VERBS

DVC = "dvc repro"
CONTESTANTS = {
    DVC: ["dvc", "repro", "-q"],
    "ours --local": ["posttrain", "run", "--local"],
    "ours + prefect": ["posttrain", "run"],
}
CASES = ("cold", "first stage", "one param")
LOOKS = (["plan"], ["status"], ["why", "s0000"], ["release", "list"], ["method", "list"])
Seconds = dict[str, float]
Measured = dict[str, dict[str, list[Seconds]]]


def main() -> None:
    options = _options()
    measured: Measured = {name: {case: [] for case in CASES} for name in options.only}
    looks: dict[str, list[Seconds]] = {}
    loads = []
    for turn in range(options.pairs):
        loads.append(round(os.getloadavg()[0], 1))
        with tempfile.TemporaryDirectory(dir=options.dir) as folder:
            _measure(Path(folder), options.stages, measured, turn)
            _look(Path(folder), looks)
    Console().print(_table(measured, options.stages))
    Console().print(_table_of_looks(looks))
    print(f"load before each pair: {loads}")
    if options.out:
        report = {"machine": described(), "load": loads, "runs": measured, "looks": looks}
        options.out.write_text(json.dumps(report, indent=1) + "\n")


def _measure(folder: Path, num_stages: int, measured: Measured, turn: int) -> None:
    graph = project.edges("chain", num_stages)
    names = [*measured]
    order = names[turn % len(names) :] + names[: turn % len(names)]
    for name in order:
        home = folder / name.replace(" ", "-")
        write = project.write_dvc if name == DVC else project.write_ours
        write(home, graph)
        began = time.time()
        measured[name]["cold"].append(_timed(name, home))
        if name != DVC:
            measured[name]["first stage"].append({"wall": _first_begin(home) - began})
    for name in order:
        home = folder / name.replace(" ", "-")
        labels = {[*graph][num_stages // 2]: "b"}
        if name == DVC:
            project.label_dvc(home, dict.fromkeys(graph, "a") | labels)
        else:
            project.label_ours(home, labels)
        measured[name]["one param"].append(_timed(name, home))


def _first_begin(home: Path) -> float:
    with sqlite3.connect(home / ".posttrain/ledger.db") as ledger:
        return float(ledger.execute("SELECT min(started) FROM stage_runs").fetchone()[0])


def _look(folder: Path, looks: dict[str, list[Seconds]]) -> None:
    ready = folder / "ours---local"
    if not ready.is_dir():
        return
    for verb in LOOKS:
        looks.setdefault(" ".join(verb), []).append(_command(["posttrain", *verb], ready))
    pages = [
        _command(["posttrain", verb, "--help"], ready) for part in VERBS.values() for verb in part
    ]
    slowest = max(pages, key=lambda each: each["wall"])
    looks.setdefault("--help, the slowest page", []).append(slowest)


def _timed(name: str, home: Path) -> Seconds:
    return _command(CONTESTANTS[name], home)


def _command(words: list[str], home: Path) -> Seconds:
    quiet = {"PREFECT_HOME": str(home / ".prefect"), "DO_NOT_TRACK": "1"}
    environment = {**os.environ, **quiet}
    # As on a machine where the packages were imported before.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", *words], cwd=home, env=environment, capture_output=True, check=False
    )
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)} failed:\n{done.stderr.decode()[-2000:]}")
    used = (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)
    return {"wall": wall, "processor": used}


def _table(measured: Measured, num_stages: int) -> Table:
    title = f"{num_stages} trivial stages: median seconds, processor time, ratio to dvc repro"
    table = Table("", *CASES, title=title, title_justify="left")
    for name, cases in measured.items():
        table.add_row(name, *(_cell(measured, name, case) for case in cases))
    return table


def _cell(measured: Measured, name: str, case: str) -> str:
    each = measured[name][case]
    if not each:
        return ""
    text = f"{statistics.median(one['wall'] for one in each):.2f}"
    if "processor" in each[0]:
        text += f" ({statistics.median(one['processor'] for one in each):.2f} cpu)"
    if name != DVC and DVC in measured and measured[DVC][case]:
        pairs = zip(each, measured[DVC][case], strict=True)
        text += (
            f" x{statistics.median(ours['wall'] / theirs['wall'] for ours, theirs in pairs):.1f}"
        )
    return text


def _table_of_looks(looks: dict[str, list[Seconds]]) -> Table:
    table = Table("a ready project", "wall", "processor", title_justify="left")
    for name, each in looks.items():
        medians = [statistics.median(one[kind] for one in each) for kind in ("wall", "processor")]
        table.add_row(name, *(f"{value:.2f}" for value in medians))
    return table


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stages", type=int, default=10)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=CONTESTANTS, default=[*CONTESTANTS])
    parser.add_argument("--dir", type=Path, help="where the projects are written [default: temp]")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
