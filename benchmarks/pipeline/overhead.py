"""What a stage costs beside its work: the same no-op stages under five ways to run them.

    python -m benchmarks.pipeline.overhead --stages 10 100 300 --repeats 5 --out overhead.json

Every figure is a whole command from the shell, start of the interpreter included. The contestants
take turns within each repeat, each time in another order, so that a busy machine slows them all;
medians and the best are reported, and the ratio to `dvc repro` is the median of the ratios within a
repeat. `cold` is a first run in a fresh project, `no-op` the same command again, `one param` after
the label of one stage in the middle changed, which asks for one execution.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.pipeline import project
from benchmarks.pipeline.machine import described

CONTESTANTS = ("loop", "dvc repro", "prefect", "ours --local", "ours + prefect", "ours plan")
CASES = ("cold", "no-op", "one param")
Seconds = dict[str, dict[str, list[float]]]


def main() -> None:
    options = _options()
    results = []
    for num_stages in options.stages:
        for shape in options.shapes:
            seconds: Seconds = {name: {case: [] for case in CASES} for name in options.only}
            loads = []
            for turn in range(options.repeats):
                loads.append(round(os.getloadavg()[0], 1))
                with tempfile.TemporaryDirectory(dir=options.dir) as folder:
                    _measure(Path(folder), shape, num_stages, seconds, turn)
            results.append(
                {"stages": num_stages, "shape": shape, "load": loads, "seconds": seconds}
            )
            Console().print(_table(shape, num_stages, seconds))
    report = {"machine": described(), "repeats": options.repeats, "results": results}
    if options.out:
        options.out.write_text(json.dumps(report, indent=1) + "\n")


def _measure(folder: Path, shape: str, num_stages: int, seconds: Seconds, turn: int) -> None:
    graph = project.edges(shape, num_stages)
    homes = {name: folder / name.replace(" ", "-") for name in seconds}
    for name, home in homes.items():
        _write(name, home, graph)
    middle = list(graph)[num_stages // 2]
    start = turn % len(homes)
    order = [*homes.items()][start:] + [*homes.items()][:start]
    for case in CASES:
        for name, home in order:
            if case == "one param":
                _relabel(name, home, graph, middle)
            seconds[name][case].append(_timed(name, home))


def _write(name: str, home: Path, graph: Mapping[str, list[str]]) -> None:
    if name.startswith("ours"):
        project.write_ours(home, graph)
        if name == "ours plan":
            _execute(_command("ours --local"), home)
    elif name == "dvc repro":
        project.write_dvc(home, graph)
    else:
        project.write_scripts(home, graph)


def _relabel(name: str, home: Path, graph: Mapping[str, list[str]], stage: str) -> None:
    if name.startswith("ours"):
        project.label_ours(home, {stage: "b"})
    elif name == "dvc repro":
        project.label_dvc(home, dict.fromkeys(graph, "a") | {stage: "b"})
    else:
        (home / "labels.json").write_text(json.dumps({stage: "b"}))


def _timed(name: str, home: Path) -> float:
    started = time.perf_counter()
    _execute(_command(name), home)
    return time.perf_counter() - started


def _command(name: str) -> list[str]:
    python = sys.executable
    return {
        "loop": [python, "loop.py"],
        "dvc repro": [python, "-m", "dvc", "repro", "-q"],
        "prefect": [python, "flow.py"],
        "ours --local": [python, "-m", "posttrain", "run", "--local"],
        "ours + prefect": [python, "-m", "posttrain", "run"],
        "ours plan": [python, "-m", "posttrain", "plan"],
    }[name]


def _execute(command: list[str], home: Path) -> None:
    quiet = {
        "PREFECT_HOME": str(home / ".prefect"),
        "PREFECT_LOGGING_LEVEL": "ERROR",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
        "DO_NOT_TRACK": "1",
    }
    done = subprocess.run(
        command, cwd=home, env={**os.environ, **quiet}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def _table(shape: str, num_stages: int, seconds: Seconds) -> Table:
    table = Table(
        title=f"{num_stages} stages, {shape}: median seconds (best)", title_justify="left"
    )
    table.add_column("")
    for case in CASES:
        table.add_column(case, justify="right")
    for name, cases in seconds.items():
        table.add_row(
            name, *(_cell(times, _against(seconds, case, times)) for case, times in cases.items())
        )
    return table


def _cell(times: Sequence[float], ratio: float | None) -> str:
    beside = "" if ratio is None else f", {ratio:.3f} of dvc"
    return f"{statistics.median(times):.2f} ({min(times):.2f}{beside})"


def _against(seconds: Seconds, case: str, times: Sequence[float]) -> float | None:
    """The median over repeats of the time in relation to `dvc repro` in the same repeat."""
    if "dvc repro" not in seconds:
        return None
    pairs = zip(times, seconds["dvc repro"][case], strict=True)
    return statistics.median(mine / theirs for mine, theirs in pairs)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stages", type=int, nargs="+", default=[10, 100, 300])
    parser.add_argument("--shapes", nargs="+", choices=project.SHAPES, default=project.SHAPES)
    parser.add_argument("--only", nargs="+", choices=CONTESTANTS, default=CONTESTANTS)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--dir", type=Path, help="where the projects are written [default: temp]")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    assert shutil.which("git"), "git is needed"
    return options


if __name__ == "__main__":
    main()
