"""Lineage as typed in a shell, the ledger's insert rate, and a trace over a million rows.

    python -m benchmarks.pipeline.lineage --edges 100000 1000000 --rows 1000000 --out lineage.json

The ledger is made of pipelines of twenty stages. Each stage reads two outputs of the stage before
it and three outputs of earlier pipelines, and makes five; so nearly everything is an ancestor of
the last output. Times of commands include the start of the interpreter; medians of `--repeats`.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import polars as pl
from rich.console import Console
from rich.table import Table

from benchmarks.pipeline.machine import described
from posttrain.data.schemas import COMPLETIONS, PROBLEMS
from posttrain.data.tables import write_table
from posttrain.provenance.ledger import ArtifactRecord, Run, StageRun, open_ledger
from posttrain.stage.hashing import sha256_of, sha256_of_file

_BATCH = 1000
_STAGES = 20
_EDGES_EACH = 10


def main() -> None:
    options = _options()
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory(dir=options.dir) as name:
        folder = Path(name)
        for num_edges in options.edges:
            figures |= _ledger(folder, num_edges, options.repeats)
        if options.rows:
            figures |= _rows(folder, options.rows, options.repeats)
    table = Table(title="lineage", title_justify="left")
    table.add_column("")
    table.add_column("median", justify="right")
    for label, value in figures.items():
        table.add_row(label, f"{value:,.2f}")
    Console().print(table)
    if options.out:
        report = {"machine": described(), "repeats": options.repeats, "figures": figures}
        options.out.write_text(json.dumps(report, indent=1) + "\n")


def _ledger(folder: Path, num_edges: int, repeats: int) -> dict[str, float]:
    path = folder / f"ledger-{num_edges}.db"
    runs = list(_stage_runs(num_edges // _EDGES_EACH))
    started = time.perf_counter()
    with open_ledger(path) as ledger:
        for first in range(0, len(runs), _BATCH):
            ledger.record(*runs[first : first + _BATCH])
    rate = len(runs) / (time.perf_counter() - started)
    last = runs[-1].outputs[0].digest
    label = f"{num_edges:,} edges"
    figures = {f"{label}: stage records inserted per second": rate}
    for verb, node in (("up", last), ("down", runs[0].outputs[0].digest)):
        command = ["lineage", verb, node, "--ledger", str(path)]
        figures[f"{label}: lineage {verb}, seconds"] = _timed(command, folder, repeats)
    return figures


def _stage_runs(number: int) -> Iterator[StageRun]:
    chance = random.Random(0)
    made: list[tuple[ArtifactRecord, ...]] = []
    for at in range(number):
        stage = f"stage{at % _STAGES}"
        inputs = tuple(made[-1][:2]) if made else ()
        earlier = {chance.randrange(len(made)) for _ in range(3)} if made else set()
        inputs += tuple(made[each][2 + order % 3] for order, each in enumerate(sorted(earlier)))
        outputs = tuple(
            ArtifactRecord(
                role=f"out{port}",
                type="completions",
                path=f"data/{stage}/out{port}.parquet",
                digest=sha256_of(f"{at}-{port}"),
                size=1000,
                rows=10,
                producer=stage,
                md5=sha256_of(f"md5-{at}-{port}")[:32],
            )
            for port in range(5)
        )
        made.append(outputs)
        yield StageRun(
            id=f"{at:032x}",
            run_id=f"run{at // _STAGES}",
            stage=stage,
            task="tasks.sft",
            key=sha256_of(f"key-{at}"),
            status="succeeded",
            started=float(at),
            ended=float(at + 1),
            components={"code": {"a:b": "1" * 64}, "params": {"seed": str(at)}},
            inputs=inputs,
            outputs=outputs,
            metrics={"loss": 0.5},
        )


def _rows(folder: Path, num_rows: int, repeats: int) -> dict[str, float]:
    """Completions of problems, filtered to the kept half: three tables, told to a ledger."""
    ids = pl.DataFrame({"n": pl.int_range(num_rows, eager=True)})
    named = {name: (pl.lit(f"{name}-") + pl.col("n").cast(pl.String)) for name in ("p", "c", "k")}
    problems = _table(ids, PROBLEMS, named["p"], None)
    completions = _table(ids, COMPLETIONS, named["c"], named["p"])
    kept = _table(ids, COMPLETIONS, named["k"], named["c"]).filter(pl.col("score") > 0.5)
    records = []
    for name, table, schema in (
        ("problems", problems, PROBLEMS),
        ("completions", completions, COMPLETIONS),
        ("kept", kept, COMPLETIONS),
    ):
        path = folder / f"data/{name}/{name}.parquet"
        path.parent.mkdir(parents=True)
        write_table(table, path, schema)
        digest = sha256_of_file(path)
        kind = "problems" if name == "problems" else "completions"
        relative = str(path.relative_to(folder))
        records.append(
            ArtifactRecord(name, kind, relative, digest, path.stat().st_size, len(table), name)
        )
    (folder / ".dvc").mkdir()
    with open_ledger(folder / ".posttrain/ledger.db") as ledger:
        ledger.begin_run(Run("run0", "x", 0.0))
        for at, record in enumerate(records):
            inputs = (records[at - 1],) if at else ()
            ledger.record(
                StageRun(
                    id=f"{at:032x}",
                    run_id="run0",
                    stage=record.role,
                    task="tasks.x",
                    key=sha256_of(record.role),
                    status="succeeded",
                    started=0.0,
                    ended=1.0,
                    inputs=inputs,
                    outputs=(record,),
                )
            )
    command = ["rows", "data/kept/kept.parquet", "--where", "score > 0.999", "--trace"]
    return {f"{num_rows:,} rows: rows --where --trace, seconds": _timed(command, folder, repeats)}


def _table(
    ids: pl.DataFrame, schema: pl.Schema, name: pl.Expr, parent: pl.Expr | None
) -> pl.DataFrame:
    """Rows of a schema with short ids and, where there is one, a parent each."""
    hashed = {"id": name.hash(0).cast(pl.String)}
    parents = pl.concat_list(parent.hash(0).cast(pl.String)) if parent is not None else pl.lit([])
    hashed["parents"] = parents.cast(pl.List(pl.String))
    score = (pl.col("n").hash(1) % 10_000) / 10_000
    columns = [
        (hashed[column] if column in hashed else score if column == "score" else pl.lit(None))
        .cast(kind)
        .alias(column)
        for column, kind in schema.items()
    ]
    fillers = {pl.String: "some text of a row", pl.Int32: 1, pl.Boolean: True, pl.Float64: 0.5}
    return ids.select(columns).with_columns(
        pl.col(kind).fill_null(filler) for kind, filler in fillers.items()
    )


def _timed(arguments: list[str], folder: Path, repeats: int) -> float:
    """Median seconds of `posttrain ...`, after one run that warms the disk cache."""
    command = [sys.executable, "-m", "posttrain", *arguments]
    quiet = {**os.environ, "COLUMNS": "120"}
    seconds = []
    for _ in range(repeats + 1):
        started = time.perf_counter()
        done = subprocess.run(command, cwd=folder, env=quiet, capture_output=True, check=False)
        seconds.append(time.perf_counter() - started)
        if done.returncode:
            raise SystemExit(done.stderr.decode())
    return statistics.median(seconds[1:])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--edges", type=int, nargs="*", default=[100_000, 1_000_000])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--dir", type=Path, help="where the data is written [default: temp]")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
