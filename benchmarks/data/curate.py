"""Rows per second of the curate stage and of the same filters written with `datasets`.

    python -m benchmarks.data.curate --rows 20000 --pairs 5 --out curate.json

Both read and write the same parquet files. The runs alternate, so that a busy machine slows both;
before the clock counts, the two must have dropped the same rows for the same reasons.
"""

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import datasets
import polars as pl
from reasoning_gym.factory import create_dataset

from benchmarks.data import with_datasets
from posttrain.data.schemas import (
    COMPLETIONS,
    PROBLEMS,
    Completion,
    Problem,
    completions_table,
    problems_table,
)
from posttrain.data.tables import write_table
from posttrain.stage.context import StageContext
from tasks.curate import TASK
from tasks.curate.config import CurateConfig
from tasks.curate.stage import run

_GENERATORS = ("gsm_symbolic", "letter_counting", "chain_sum", "basic_arithmetic")


def main() -> None:
    options = _options()
    with tempfile.TemporaryDirectory() as folder:
        inputs = _tables(Path(folder), options.rows)
        contestants = {
            "posttrain": _contestant(Path(folder), "ours", _ours, inputs),
            "datasets": _contestant(Path(folder), "theirs", with_datasets.curate, inputs),
        }
        seconds = _measure(contestants, options.pairs)
        _compare(Path(folder))
    rows = 2 * options.rows
    report = {
        "rows": rows,
        "seconds": seconds,
        "rows_per_second": {
            name: round(rows / statistics.median(times)) for name, times in seconds.items()
        },
        "speedup_per_pair": [
            round(theirs / ours, 2)
            for ours, theirs in zip(seconds["posttrain"], seconds["datasets"], strict=True)
        ],
        "environment": {
            "polars": pl.__version__,
            "datasets": datasets.__version__,
            "python": platform.python_version(),
            "polars_threads": pl.thread_pool_size(),
            "load": os.getloadavg()[0],
        },
    }
    _show(report)
    if options.out:
        options.out.write_text(json.dumps(report, indent=2) + "\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000, help="problems; as many traces")
    parser.add_argument("--pairs", type=int, default=5, help="runs of each, alternating")
    parser.add_argument("--out", type=Path, help="where to write the figures as JSON")
    return parser.parse_args()


def _problems(count: int, seed: int) -> Iterator[Problem]:
    """Problems of four generators; item i of seed s is item i + 1 of seed s - 1."""
    for source in _GENERATORS:
        for entry in create_dataset(source, size=count // len(_GENERATORS), seed=seed):
            level = len(entry["question"]) // 50
            yield Problem(source, entry["question"], entry["answer"], level, "reasoning_gym")


def _tables(folder: Path, rows: int) -> dict[str, Path]:
    problems = list(_problems(rows, seed=1))
    traces = [
        Completion(problem, f"#### {problem.answer}", "teacher", 1.0, True, "correct")
        for problem in problems
    ]
    inputs = {name: folder / f"{name}.parquet" for name in TASK.inputs}
    write_table(problems_table(problems), inputs["problems"], PROBLEMS)
    # A near seed would repeat nearly all of the training problems.
    write_table(problems_table(list(_problems(1000, seed=1_000_000))), inputs["heldout"], PROBLEMS)
    write_table(completions_table(traces), inputs["traces"], COMPLETIONS)
    return inputs


def _ours(config: CurateConfig, inputs: dict[str, Path], outputs: dict[str, Path]) -> None:
    run(config, inputs, outputs, StageContext.quiet(outputs["problems"].parent / "scratch"))


def _contestant(
    folder: Path, name: str, curate: Callable, inputs: dict[str, Path]
) -> Callable[[], None]:
    (folder / name).mkdir()
    outputs = {
        port: folder / name / f"{port}{spec.type.suffix}" for port, spec in TASK.outputs.items()
    }
    return lambda: curate(CurateConfig(), inputs, outputs)


def _measure(contestants: dict[str, Callable[[], None]], pairs: int) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for round_number in range(pairs + 1):
        for name, contestant in contestants.items():
            start = time.perf_counter()
            contestant()
            # The first round warms caches and imports.
            if round_number:
                seconds[name].append(round(time.perf_counter() - start, 3))
    return seconds


def _compare(folder: Path) -> None:
    for table in ("problems", "traces"):
        ours, theirs = (
            pl.read_parquet(folder / side / f"dropped_{table}.parquet").select("id", "reason")
            for side in ("ours", "theirs")
        )
        if not ours.sort("id", "reason").equals(theirs.sort("id", "reason")):
            both = ours.join(theirs, on="id", how="full", suffix="_theirs")
            raise SystemExit(f"{table}: not the same rows were dropped: {both}")
        counts = dict(ours["reason"].value_counts(sort=True).iter_rows())
        print(f"{table}: both dropped {len(ours)}: {counts}")


def _show(report: dict) -> None:
    print(f"{'':12}{'median s':>10}{'min s':>10}{'max s':>10}{'rows/s':>12}")
    for name, times in report["seconds"].items():
        spread = (statistics.median(times), min(times), max(times))
        figures = "".join(f"{value:>10.2f}" for value in spread)
        print(f"{name:12}{figures}{report['rows_per_second'][name]:>12,}")
    print("speed-up, pair by pair:", report["speedup_per_pair"])


if __name__ == "__main__":
    main()
