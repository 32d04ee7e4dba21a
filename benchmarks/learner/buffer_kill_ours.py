"""This package's side of `buffer_kill`: the RL stage, killed or not, gone on with by itself."""

import json
import os
import signal
import sys
from pathlib import Path

import torch

from benchmarks.learner.ours import problem, solve_rates
from benchmarks.learner.settings import GROUP, PROBLEMS
from posttrain.data.schemas import PROBLEMS as PROBLEMS_SCHEMA
from posttrain.data.schemas import SOLVE_RATES, problems_table
from posttrain.data.tables import write_table
from posttrain.learning.models.load import load_policy, weights_digest
from posttrain.learning.models.optim import Optimizer
from posttrain.stage.context import StageContext
from posttrain.stage.slots import plugged
from tasks.rl.config import RlStageConfig
from tasks.rl.stage import run


def kill_after(num_updates: int) -> None:
    """End the process, as `kill -9` does, when so many updates were made in it."""
    step, made = Optimizer.step, []

    def counted(self: Optimizer, *, learning_rate: float, max_grad_norm: float | None) -> float:
        norm = step(self, learning_rate=learning_rate, max_grad_norm=max_grad_norm)
        made.append(norm)
        if len(made) == num_updates:
            os.kill(os.getpid(), signal.SIGKILL)
        return norm

    Optimizer.step = counted  # type: ignore[method-assign]


def main() -> None:
    """Train and save."""
    job = json.loads(sys.argv[1])
    given, folder = Path(job["given"]), Path(job["folder"])
    torch.set_num_threads(1)
    rows = json.loads((given / "rows.json").read_text())
    size = json.loads((given / "size.json").read_text())
    problems = [problem(text) for text in rows["prompts"]]
    write_table(problems_table(problems), folder / "problems.parquet", PROBLEMS_SCHEMA)
    policy = weights_digest(load_policy(given / "endless").model)
    write_table(solve_rates(problems, policy), folder / "solve_rates.parquet", SOLVE_RATES)
    config = RlStageConfig(
        algorithm="grpo_trl",
        steps=job["updates"] // (job["minibatches"] * job["epochs"]),
        problems_per_step=PROBLEMS,
        group_size=GROUP,
        max_tokens=size["new_tokens"],
        draw={"train_on": "all"},
        optimization={
            "optimizer": "adamw",
            "learning_rate": 1e-3,
            "lr_schedule": "constant",
            "warmup_steps": 0,
        },
        updates={"minibatches": job["minibatches"], "epochs": job["epochs"]},
        checkpoint_every=job["checkpoint"],
    )
    if job["kill"]:
        kill_after(job["kill"])
    context = StageContext.quiet(folder / "scratch")
    inputs = {
        "policy": given / "endless",
        "problems": folder / "problems.parquet",
        "solve_rates": folder / "solve_rates.parquet",
    }
    outputs = {"policy": folder / "final"}
    outputs |= {name: folder / name for name in ("rollouts", "curve", "report")}
    with plugged(["benchmarks.learner.half_verifier"]):
        run(config, inputs, outputs, context)


if __name__ == "__main__":
    main()
