"""This package's side of `race`: the RL stage of the default recipe.

python -m benchmarks.learner.race_ours FOLDER WEIGHTS BURST STEPS DATA
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from benchmarks.learner.pace import Pace
from posttrain.learning.rl.learner import PolicyLearner
from posttrain.pipeline.determinism import keep_freed_memory, make_deterministic
from posttrain.stage.context import StageContext
from tasks.rl.config import RlStageConfig
from tasks.rl.stage import run


def main() -> None:
    """Train until the parent has heard enough."""
    folder, weights, burst, steps, data = sys.argv[1:]
    keep_freed_memory()
    make_deterministic(0, 1, "portable")
    seen: list[PolicyLearner] = []
    pace = Pace(
        warm_up=1,
        burst=int(burst),
        keep=lambda: torch.save(seen[0].model.state_dict(), weights),
    )
    update = PolicyLearner.update

    def watched(learner: PolicyLearner, *given: Any, **options: Any) -> dict[str, float]:
        seen[:] = [learner]
        return update(learner, *given, **options)

    PolicyLearner.update = watched  # type: ignore[method-assign]

    def hear(event: Mapping[str, Any]) -> None:
        if event["kind"] == "progress":
            pace.step()

    own = Path(folder) / "ours"
    (own / "scratch").mkdir(parents=True)
    context = StageContext(seed=0, threads=1, device="cpu", scratch=own / "scratch", emit=hear)
    inputs = {
        "policy": Path(data) / "sft/policy",
        "problems": Path(data) / "curate/problems.parquet",
        "solve_rates": Path(data) / "probe/solve_rates.parquet",
    }
    names = ("policy", "rollouts", "curve", "report")
    run(RlStageConfig(steps=int(steps)), inputs, {name: own / name for name in names}, context)


if __name__ == "__main__":
    main()
