"""Seconds a step of RL where an environment waits: drawn in between, and drawn ahead by others.

    python -m benchmarks.sampling.asynchronous --out benchmarks/sampling/asynchronous.json

Pairs of runs take turns: one that draws and learns by turns (`staleness: 0`), and one with as many
processes that draw ahead as its staleness allows. Both play equally many episodes of four turns in
an environment that answers a round of all episodes after 50 ms. Seconds of a step are those from
one finished step to the next, without the first ones, during which processes start; those of the
whole run are there too. Both policies then answer held-out problems.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import torch

from benchmarks.sampling.machine import described
from benchmarks.sampling.waiting import Waiting, write_inputs
from posttrain.learning.maths.intervals import clustered_mean_interval
from posttrain.stage.context import StageContext
from tasks.probe.config import ProbeConfig
from tasks.probe.stage import run as probe
from tasks.rl.config import RlStageConfig
from tasks.rl.stage import run as learn

_STEPS, _STARTING = 30, 8
_COMMON: Mapping[str, Any] = {
    "steps": _STEPS,
    "problems_per_step": 8,
    "group_size": 8,
    "max_tokens": 6,
    "optimization": {"optimizer": "adamw", "learning_rate": 1e-3, "warmup_steps": 2},
    "updates": {"minibatches": 2},
    "checkpoint_every": 0,
    "algorithm": {
        "old_policy": "recomputed",
        "token_weights": {"importance": {"bound": "truncate", "high": 2.0}},
    },
}


def measured(
    inputs: Mapping[str, Path], folder: Path, environment: Waiting, *, ahead: int, seed: int
) -> dict[str, Any]:
    """Learn, and answer held-out problems.

    Args:
        inputs: What `write_inputs` wrote.
        folder: For what the run writes.
        environment: What is played in.
        ahead: Processes that draw ahead, and the staleness; 0 for neither.
        seed: Of the run.

    Returns:
        Figures by name.

    """
    (folder / "scratch").mkdir(parents=True)
    ends: list[float] = []

    def emit(event: Mapping[str, object]) -> None:
        if event["kind"] == "progress" and event["unit"] == "step":
            ends.append(time.perf_counter())

    context = StageContext(seed, 1, "cpu", folder / "scratch", emit)
    outputs = {name: folder / name for name in ("policy", "rollouts", "curve", "report")}
    turns = environment.rounds + 1
    producer = {"kind": "episodes", "environment": environment, "most_turns": turns}
    config = RlStageConfig(**_COMMON, producer=producer, staleness=ahead, ahead=ahead)
    given = {name: inputs[name] for name in ("policy", "problems")}
    started = time.perf_counter()
    learn(config, given, outputs, context)
    whole = time.perf_counter() - started
    steps = [after - before for before, after in zip(ends, ends[1:], strict=False)][_STARTING:]

    probed = {name: folder / name for name in ("samples", "solve_rates")}
    quick = environment.model_copy(update={"seconds": 0.0})
    tried = ProbeConfig(num_samples=4, max_tokens=6, environment=quick, most_turns=turns)
    given = {"policy": outputs["policy"], "problems": inputs["heldout"]}
    probe(tried, given, probed, StageContext.quiet(folder / "probe", seed=seed))
    rates = pl.read_parquet(probed["solve_rates"])
    return {
        "seconds_a_step": statistics.median(steps),
        "seconds_whole": whole,
        "episodes": len(pl.read_parquet(outputs["rollouts"])),
        "solve_rates": rates.sort("problem_id")["solve_rate"].to_list(),
    }


def summary(
    pairs: Sequence[Mapping[str, Any]], environment: Waiting, *, ahead: int
) -> dict[str, Any]:
    """Compare the runs of each pair.

    Args:
        pairs: What was measured.
        environment: What was played in.
        ahead: Processes that drew ahead.

    Returns:
        Ratios with their medians, and the share of held-out attempts that are right with an
        interval that knows that attempts at one problem go together.

    """
    found: dict[str, Any] = {
        "machine": described(1),
        "ahead": ahead,
        "seconds_of_an_answer": environment.seconds,
    }
    for figure in ("seconds_a_step", "seconds_whole"):
        ratios = [each["ahead"][figure] / each["by_turns"][figure] for each in pairs]
        found[f"ratios_of_{figure}"] = ratios
        found[f"ratio_of_{figure}"] = statistics.median(ratios)
    for name in ("by_turns", "ahead"):
        rates = torch.tensor([each[name]["solve_rates"] for each in pairs])
        problem = torch.arange(rates.shape[1]).expand_as(rates)
        mean, low, high = clustered_mean_interval(rates.flatten(), problem.flatten())
        steps = [each[name]["seconds_a_step"] for each in pairs]
        found[name] = {
            "seconds_a_step": statistics.median(steps),
            "pass@1": float(mean),
            "interval": [float(low), float(high)],
        }
    return {**found, "pairs": list(pairs)}


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--ahead", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=0.05)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    environment = Waiting(seconds=options.seconds)
    pairs = []
    with tempfile.TemporaryDirectory() as root:
        inputs = write_inputs(Path(root) / "inputs", hidden=32, layers=1)
        for seed in range(options.pairs):
            pair = {}
            for ahead in (0, options.ahead) if seed % 2 == 0 else (options.ahead, 0):
                name = "ahead" if ahead else "by_turns"
                folder = Path(root) / f"{name}-{seed}"
                pair[name] = measured(inputs, folder, environment, ahead=ahead, seed=seed)
                print(name, pair[name], flush=True)
            pairs.append(pair)
            if options.out:
                found = summary(pairs, environment, ahead=options.ahead)
                options.out.write_text(json.dumps(found, indent=1) + "\n")
    found = summary(pairs, environment, ahead=options.ahead)
    print(json.dumps({name: each for name, each in found.items() if name != "pairs"}, indent=1))


if __name__ == "__main__":
    main()
