"""Seconds a step of RL where an environment waits: drawn in between, and drawn ahead by others.

    OMP_NUM_THREADS=1 python -m benchmarks.sampling.asynchronous --out asynchronous.json

Pairs of runs take turns: one that draws and learns by turns (`staleness: 0`), and one with as many
processes that draw ahead as its staleness allows. Both play equally many episodes of four turns in
an environment that answers a round of all episodes after 50 ms, and nothing else differs but what
the learner is told of staleness. Processes that draw come and go in bursts, so that seconds of a
step are a mean: from the end of step 8, when all of them are there, to the last step of which a
generation was begun in place of one that was taken, by the number of steps between. Seconds of the
whole run, with what it costs to start and end processes, are there too. Both policies then answer
held-out problems; the difference of a pair is one observation, and Student's interval over pairs
says whether pass@1 is equal within a margin of 0.1. Wants two idle cores.
"""

import argparse
import json
import os
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
from posttrain.learning.maths.decision import decided, paired_interval
from posttrain.learning.maths.intervals import clustered_mean_interval
from posttrain.stage.context import StageContext
from tasks.probe.config import ProbeConfig
from tasks.probe.stage import run as probe
from tasks.rl.config import RlStageConfig
from tasks.rl.stage import run as learn

_STARTING, _ENDS = 8, 5
_TARGET = 0.6
"""Seconds a step drawn ahead over those by turns, at most."""
_MARGIN = 0.1
"""Of pass@1, beyond which the two are not equal: said before anything was measured."""
_COMMON: Mapping[str, Any] = {
    "problems_per_step": 8,
    "group_size": 8,
    "max_tokens": 6,
    "optimization": {"optimizer": "adamw", "learning_rate": 5e-3, "warmup_steps": 2},
    "updates": {"minibatches": 2},
    "checkpoint_every": 0,
    "algorithm": {
        "old_policy": "recomputed",
        "token_weights": {"importance": {"bound": "truncate", "high": 2.0}},
    },
}


def measured(
    inputs: Mapping[str, Path],
    folder: Path,
    environment: Waiting,
    *,
    steps: int,
    ahead: int,
    seed: int,
) -> dict[str, Any]:
    """Learn, and answer held-out problems.

    Args:
        inputs: What `write_inputs` wrote.
        folder: For what the run writes.
        environment: What is played in.
        steps: Steps of learning.
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
    config = RlStageConfig(**_COMMON, steps=steps, producer=producer, staleness=ahead, ahead=ahead)
    given = {name: inputs[name] for name in ("policy", "problems")}
    started = time.perf_counter()
    learn(config, given, outputs, context)
    whole = time.perf_counter() - started
    # The last steps find their generations drawn already, and begin none.
    steady = ends[_STARTING - 1 : steps - ahead]
    seconds = (steady[-1] - steady[0]) / (len(steady) - 1)

    probed = {name: folder / name for name in ("samples", "solve_rates")}
    quick = environment.model_copy(update={"seconds": 0.0})
    tried = ProbeConfig(num_samples=4, max_tokens=6, environment=quick, most_turns=turns)
    given = {"policy": outputs["policy"], "problems": inputs["heldout"]}
    probe(tried, given, probed, StageContext.quiet(folder / "probe", seed=seed))
    rates = pl.read_parquet(probed["solve_rates"])
    trained = pl.read_parquet(outputs["rollouts"])
    return {
        "seconds_a_step": seconds,
        "seconds_whole": whole,
        "load": os.getloadavg()[0],
        "episodes_trained": trained["trained"].sum(),
        "reward": _ends_of(trained, steps),
        "solve_rates": rates.sort("problem_id")["solve_rate"].to_list(),
    }


def _ends_of(rollouts: pl.DataFrame, steps: int) -> list[float]:
    """Mean reward of the first and the last five steps: whether there was anything to learn."""
    step = pl.col("step")
    parts = (rollouts.filter(step <= _ENDS), rollouts.filter(step > steps - _ENDS))
    return [float(part["reward"].mean()) for part in parts]  # type: ignore[arg-type]


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
    waiting = (environment.rounds + 1) * environment.seconds
    found: dict[str, Any] = {
        "machine": described(1),
        "ahead": ahead,
        "seconds_of_waiting_a_step": waiting,
    }
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
    for figure in ("seconds_a_step", "seconds_whole"):
        ratios = [each["ahead"][figure] / each["by_turns"][figure] for each in pairs]
        found[f"ratios_of_{figure}"] = ratios
        found[f"ratio_of_{figure}"] = statistics.median(ratios)
    found["target"] = {"ratio_of_seconds_a_step": _TARGET}
    found["target"]["met"] = found["ratio_of_seconds_a_step"] <= _TARGET
    apart = torch.tensor(
        [
            statistics.fmean(each["ahead"]["solve_rates"])
            - statistics.fmean(each["by_turns"]["solve_rates"])
            for each in pairs
        ]
    )
    _, low, high = paired_interval(apart)
    found["pass@1_apart"] = {
        "differences": apart.tolist(),
        "interval": [float(low), float(high)],
        "equal_within": _MARGIN,
        "equal": decided(apart, direction="equal", margin=_MARGIN),
    }
    return {**found, "pairs": list(pairs)}


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=40, help="of a run; 16 at least")
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
                pair[name] = measured(
                    inputs, folder, environment, steps=options.steps, ahead=ahead, seed=seed
                )
                told = {n: v for n, v in pair[name].items() if n != "solve_rates"}
                print(name, json.dumps(told), flush=True)
            if pair["ahead"]["episodes_trained"] != pair["by_turns"]["episodes_trained"]:
                raise SystemExit("the runs of a pair learned from unequally many episodes")
            pairs.append(pair)
            if options.out:
                found = summary(pairs, environment, ahead=options.ahead)
                options.out.write_text(json.dumps(found, indent=1) + "\n")
    found = summary(pairs, environment, ahead=options.ahead)
    print(json.dumps({name: each for name, each in found.items() if name != "pairs"}, indent=1))


if __name__ == "__main__":
    main()
