"""What one executed stage costs: from the end of one no-op to the end of the next.

    python -m benchmarks.pipeline.stage_cost --stages 60 --repeats 5 --out stage_cost.json
    python -m benchmarks.pipeline.stage_cost --against ../before    # two trees, turn by turn

A first run with --local and without MLflow in a fresh project. The time between two records of a
chain is all that lies between them: key, fork, the no-op, verification, publishing, the ledger.
`--against` names another checkout of this repository, which takes turns with this one.
"""

import argparse
import json
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.pipeline import project
from benchmarks.pipeline.machine import described

ROOT = Path(__file__).resolve().parents[2]


def main() -> None:
    options = _options()
    trees = [ROOT, *([options.against.resolve()] if options.against else [])]
    figures: dict[str, list[dict[str, float]]] = {str(tree): [] for tree in trees}
    for turn in range(options.repeats):
        for tree in trees if turn % 2 == 0 else trees[::-1]:
            figures[str(tree)].append(_measure(tree, options.stages))
    for tree, measured in figures.items():
        costs = [each["milliseconds"] for each in measured]
        took = statistics.median(each["seconds"] for each in measured)
        print(
            f"{Path(tree).name}: {statistics.median(costs):.1f} ms from stage to stage "
            f"(best {min(costs):.1f}, worst {max(costs):.1f}); the whole run {took:.2f} s"
        )
    if options.out:
        report = {"machine": described(), "stages": options.stages, "figures": figures}
        options.out.write_text(json.dumps(report, indent=1) + "\n")


def _measure(tree: Path, num_stages: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "project"
        project.write_ours(home, project.edges("chain", num_stages))
        environment = {**os.environ, "POSTTRAIN_TRACKING": "off", "PYTHONPATH": str(tree)}
        command = [sys.executable, "-m", "posttrain", "run", "--local"]
        load, started = os.getloadavg()[0], time.perf_counter()
        subprocess.run(command, cwd=home, env=environment, capture_output=True, check=True)
        seconds = time.perf_counter() - started
        with sqlite3.connect(home / ".posttrain/ledger.db") as ledger:
            ends = [row[0] for row in ledger.execute("SELECT ended FROM stage_runs ORDER BY num")]
    gaps = [after - before for before, after in zip(ends, ends[1:], strict=False)]
    return {"milliseconds": 1000 * statistics.median(gaps), "seconds": seconds, "load": load}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stages", type=int, default=60)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--against", type=Path, help="another checkout to take turns with")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
