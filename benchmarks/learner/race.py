"""Seconds of training to a fixed pass@1 on the default recipe's problems, ours and TRL's GRPO.

    python -m benchmarks.learner.race --peer-python PEER/bin/python --out race.json

Both start from the policy that the default recipe's SFT made (`make run` first) and draw groups of
the same size from the same problems, judged by the same verifiers: those that the recipe's RL stage
may draw from. Ours is that stage with the recipe's settings. TRL's has the same objective
(clipping, no scaling by the spread, mean over tokens, no divergence), batch, temperature, schedule
and number of steps, and AdamW at each of the rates that are given, of which its quickest counts.
The sides take turns of ten steps, with one thread; between turns the weights are kept and the clock
stands. All weights are then judged alike: 512 held-out problems, `--samples` samples each.
"""

import argparse
import json
import os
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.learner.compare import ROOT, Side
from benchmarks.learner.machine import described
from posttrain.data.schemas import PROBLEMS, SOLVE_RATES, Problem
from posttrain.data.tables import read_table
from posttrain.learning.models.load import Policy, load_policy
from posttrain.learning.rewards.verify import VerifierCache
from posttrain.learning.rollouts.engines.base import SamplingParams
from posttrain.learning.rollouts.engines.torch_engine import TorchRolloutEngine
from posttrain.learning.rollouts.scoring import (
    make_prompts,
    problems_of,
    read_problems,
    sample_and_score_all,
)

BURST, STEPS = 10, 200


def main() -> None:
    """Take turns until every side has reached the mark or used up its steps; print and write."""
    options = _options()
    torch.set_num_threads(1)
    policy = load_policy(options.data / "sft/policy")
    heldout = read_problems(options.data / "synthesize/heldout.parquet")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_problems(folder, policy, options.data)
        start = judged(policy, heldout, options.samples)
        sides = opened(folder, options)
        curves = {name: [(0.0, 0.0, start)] for name in sides}
        running = dict(sides)
        while running:
            for name, side in list(running.items()):
                side.go()
                weights = folder / f"{name}.pt"
                policy.model.load_state_dict(torch.load(weights, weights_only=True))
                found = judged(policy, heldout, options.samples)
                spent, busy = sum(side.seconds), sum(side.processor)
                curves[name].append((spent, busy, found))
                steps = 1 + BURST * len(side.seconds)
                print(f"{name} step {steps}: {spent:.1f} s, pass@1 {found:.3f}", flush=True)
                late = spent >= options.give_up or steps + BURST > STEPS
                if found >= options.mark or late:
                    side.end()
                    del running[name]
    results = [summary(name, curve, options.mark) for name, curve in curves.items()]
    Console(width=100).print(table(results, options.mark))
    if options.out:
        report = {"machine": described(options.peer_python), "mark": options.mark}
        report |= {"samples": options.samples, "start": start, "results": results}
        options.out.write_text(json.dumps(report, indent=1) + "\n")


def opened(folder: Path, options: Any) -> dict[str, Side]:
    """The children, each past its first step."""
    # The peer's environment has no verifiers: those come from here, after its own packages.
    os.environ["VERIFIERS_FROM"] = sysconfig.get_paths()["purelib"]
    data = str(options.data.resolve())
    commands = {"ours": (sys.executable, "benchmarks.learner.race_ours", data)}
    for rate in options.peer_rates:
        peer = (options.peer_python, "benchmarks.learner.race_peer", rate)
        commands[f"TRL at {rate}"] = peer
    sides = {}
    for name, (python, module, more) in commands.items():
        weights = str(folder / f"{name}.pt")
        sides[name] = Side(python, module, [str(folder), weights, str(BURST), str(STEPS), more])
        sides[name].hear()
    return sides


def write_problems(folder: Path, policy: Policy, data: Path) -> None:
    """What the peer learns from: the problems of useful solve rate, as the policy reads them."""
    rates = read_table(data / "probe/solve_rates.parquet", SOLVE_RATES)
    useful = rates.filter((rates["solve_rate"] > 0.0) & (rates["solve_rate"] < 1.0))
    table = read_table(data / "curate/problems.parquet", PROBLEMS)
    problems = problems_of(table.filter(table["id"].is_in(useful["problem_id"].implode())))
    prompts = make_prompts(policy.tokenizer, problems)
    rows = [
        {
            "prompt": policy.tokenizer.decode(prompt.token_ids),
            "ids": list(prompt.token_ids),
            "problem": json.dumps(fields(problem)),
        }
        for problem, prompt in zip(problems, prompts, strict=True)
    ]
    (folder / "problems.json").write_text(json.dumps(rows))
    policy.model.save_pretrained(folder / "policy")
    policy.tokenizer.save_pretrained(folder / "policy")


def fields(problem: Problem) -> dict[str, Any]:
    """What a verifier reads of a problem."""
    names = ("source", "prompt", "answer", "difficulty", "verifier", "metadata")
    return {name: getattr(problem, name) for name in names}


def judged(policy: Policy, problems: list[Problem], samples: int) -> float:
    """The share of right samples of the held-out problems, the same draws for all weights."""
    engine = TorchRolloutEngine(policy.model.eval(), policy.tokenizer, batch_size=512)
    params = SamplingParams(max_tokens=72, num_samples=samples, seed=1)
    prompts = make_prompts(policy.tokenizer, problems)
    made = sample_and_score_all(
        engine, problems, prompts, params, verify=VerifierCache(), report=lambda done: None
    )
    return sum(bool(each.score.correct) for each in made) / len(made)


def summary(name: str, curve: list[tuple[float, float, float]], mark: float) -> dict[str, Any]:
    """When the mark was first met, by the clock and by the processor; None where it was not."""
    met = next((point for point in curve if point[2] >= mark), None)
    steps = None if met is None else 1 + BURST * curve.index(met)
    return {
        "side": name,
        "steps": steps,
        "seconds": met[0] if met else None,
        "processor": met[1] if met else None,
        "curve": curve,
    }


def table(results: list[dict[str, Any]], mark: float) -> Table:
    """Seconds to the mark."""
    shown = Table(title=f"Training to pass@1 {mark}", title_justify="left")
    for column in ("side", "steps", "seconds", "of processor", "last pass@1"):
        shown.add_column(column, justify="left" if column == "side" else "right")
    for each in results:
        cells = [
            "not reached" if each[name] is None else f"{each[name]:.0f}"
            for name in ("steps", "seconds", "processor")
        ]
        shown.add_row(each["side"], *cells, f"{each['curve'][-1][2]:.3f}")
    return shown


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peer-python", required=True, help="interpreter of TRL's environment")
    parser.add_argument("--peer-rates", nargs="+", default=["1e-3", "3e-4"])
    parser.add_argument("--data", type=Path, default=ROOT / "data", help="the default recipe's")
    parser.add_argument("--mark", type=float, default=0.7)
    parser.add_argument("--give-up", type=float, default=600.0, help="seconds of training")
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
