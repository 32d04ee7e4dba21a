"""What portable kernels cost: the default recipe and the learner's steps, in interleaved turns.

    python -m benchmarks.reliability.kernel_cost [--pairs 5] [--out kernel_cost.json]

Three contestants take turns, each time in another order: `portable` and `fast`, as a recipe names
them, and `unbound`, torch as it comes (every recipe before there was a choice). The recipe runs
with an eighth of its steps and without its reward model, the learner's workloads as in
`benchmarks.learner.compare`; each turn is a process of its own with one thread. Seconds are the
processor's. Ratios are medians of the ratios within a turn.
"""

import argparse
import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.learner.settings import prepare
from benchmarks.reliability.portable import ROOT, run_stages
from benchmarks.sampling.machine import described
from posttrain.stage import kernels as binding
from posttrain.stage.kernels import Kernels, kernel_environment

CONTESTANTS = ("portable", "fast", "unbound")
WORKLOADS = ("sft", "dpo", "reward", "grpo")
SIZES = ("156k", "1.25m")
EIGHTH = ("pretrain.steps=275", "probe.num_problems=500", "rl.steps=25", "evaluate.num_samples=2")
EIGHTH += ("evaluate.pass_at=[1]", "synthesize.num_problems=3000")
_WARM_UP, _STEPS = 5, 40
Figures = dict[str, float]


def main() -> None:
    """Measure, print and write."""
    options = _options()
    if options.here:
        print(json.dumps(_measure_here(options.here, options.models)))
        return
    order, turns = random.Random(0), []
    with tempfile.TemporaryDirectory() as models:
        for size in SIZES:
            folder = Path(models) / size
            folder.mkdir()
            (folder / "size.json").write_text(json.dumps(prepare(folder, size)))
        for number in range(options.pairs):
            turn = {
                name: _measure(name, Path(models))
                for name in order.sample(CONTESTANTS, len(CONTESTANTS))
            }
            turns.append(turn)
            wholes = ", ".join(f"{name} {turn[name]['recipe']:.1f} s" for name in CONTESTANTS)
            print(f"turn {number + 1} of {options.pairs}: recipe {wholes}", flush=True)
    rows = _rows(turns)
    _print_table(rows)
    if options.out:
        report = {"machine": described(1), "pairs": options.pairs, "rows": rows}
        options.out.write_text(json.dumps(report, indent=1) + "\n")


def _rows(turns: list[dict[str, Figures]]) -> list[dict[str, Any]]:
    rows = []
    for what in turns[0]["portable"]:
        row: dict[str, Any] = {"what": what}
        for name in CONTESTANTS:
            row[name] = round(statistics.median(turn[name][what] for turn in turns), 4)
        for name in ("fast", "unbound"):
            ratios = [turn["portable"][what] / turn[name][what] for turn in turns]
            row[f"portable / {name}"] = round(statistics.median(ratios), 3)
        rows.append(row)
    return rows


def _print_table(rows: list[dict[str, Any]]) -> None:
    print(f"\n| seconds of the processor | {' | '.join(list(rows[0])[1:])} |")
    print("|" + "---|" * len(rows[0]))
    for row in rows:
        figures = [f"{row[name]:.3g}" for name in list(row)[1:]]
        print(f"| {' | '.join([row['what'], *figures])} |")


def _measure(contestant: str, models: Path) -> Figures:
    """Let a process of its own run everything once."""
    command = [sys.executable, "-m", "benchmarks.reliability.kernel_cost", "--here", contestant]
    threads = dict.fromkeys(binding.THREADS, "1")
    bound = kernel_environment("portable") if contestant == "portable" else {}
    done = subprocess.run(
        [*command, "--models", str(models)],
        cwd=ROOT,
        env={**os.environ, **threads, **binding.REPEATABLE, **bound},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{contestant}: {done.stderr[-2000:]}")
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    return figures


def _measure_here(contestant: str, models: Path) -> Figures:
    from posttrain.pipeline import determinism

    kernels: Kernels = "portable" if contestant == "portable" else "fast"
    if contestant == "unbound":
        # As it was before there was a choice: neither variables nor an answer for MKL.
        determinism.bind_kernels = lambda kernels: None
    with tempfile.TemporaryDirectory() as folder:
        stages = {each.name: each.seconds for each in run_stages(Path(folder), EIGHTH, kernels)}
    figures = {"recipe": sum(stages.values())}
    figures |= {f"recipe: {name}": seconds for name, seconds in stages.items()}
    for size in SIZES:
        for workload in WORKLOADS:
            figures[f"step of {workload}, {size}"] = _seconds_of_step(
                models / size, workload, kernels
            )
    return figures


def _seconds_of_step(folder: Path, workload: str, kernels: Kernels) -> float:
    from benchmarks.learner.ours import train
    from benchmarks.learner.phases import Count, Enough

    count = Count(warm_up=_WARM_UP, steps=_STEPS)
    with contextlib.suppress(Enough):
        train(folder, workload, count, kernels=kernels)
    return count.phases()["step"] / 1000


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--here", choices=CONTESTANTS, help=argparse.SUPPRESS)
    parser.add_argument("--models", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
