"""Write the learning curves of a trial as a table of published runs, one row a point.

posttrain method run open_rl_benchmark --seeds 6
python tests/methods/write_published.py open_rl_benchmark.runs_come_out_again COMMIT
"""

import csv
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "posttrain" / "methods" / "eval" / "open_rl_benchmark.csv"
METRICS = ("rl/reward", "rl/entropy")
FIRST_OF_TRIALS = 101


def written(claim: str, commit: str) -> int:
    """Write the table; returns its number of runs.

    Args:
        claim: Method and claim, with a dot between them, of a trial that ended here.
        commit: Of the code that ran it.

    """
    import polars as pl

    rows = []
    for path in sorted((ROOT / ".posttrain" / "claims" / claim / "data").glob("rl_*")):
        run, seed = re.fullmatch(r"rl_(\w+)_(\d+)", path.name).groups()
        if int(seed) < FIRST_OF_TRIALS:
            continue
        points = pl.read_parquet(path / "curve.parquet").sort("metric", "step")
        name = "default" if run == "open_rl_benchmark" else run
        rows += [
            [name, int(seed), step, metric, f"{value:.6g}", commit]
            for step, metric, value in points.select("step", "metric", "value").iter_rows()
            if metric in METRICS
        ]
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["run", "seed", "step", "metric", "value", "commit"])
        table.writerows(rows)
    return len({tuple(row[:2]) for row in rows})


if __name__ == "__main__":
    print(f"{written(*sys.argv[1:])} runs: {TABLE}")
