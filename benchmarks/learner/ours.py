"""This package's side: the very stages that a recipe runs, as a child of `compare`.

python -m benchmarks.learner.ours FOLDER WORKLOAD WARM_UP BURST [DEVICE [DTYPE]]
"""

import json
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from benchmarks.learner.pace import Pace
from benchmarks.learner.settings import LEARNING_RATE, RL_LEARNING_RATE
from posttrain.data.rows import encode_rows
from posttrain.data.schemas import (
    COMPLETIONS,
    IDENTITY,
    SOLVE_RATES,
    Completion,
    Problem,
    completions_table,
    problems_table,
    with_row_ids,
)
from posttrain.data.schemas import (
    PROBLEMS as PROBLEMS_SCHEMA,
)
from posttrain.data.tables import write_table
from posttrain.learning.models.load import load_policy, load_tokenizer, weights_digest
from posttrain.pipeline.determinism import keep_freed_memory, make_deterministic
from posttrain.stage.context import StageContext
from posttrain.stage.kernels import Kernels
from posttrain.stage.slots import plugged

MANY = 20_000
"""Steps that are planned; the parent ends the process long before."""


def main() -> None:
    """Train until the parent has heard enough."""
    folder, workload, warm_up, burst, *rest = sys.argv[1:]
    pace = Pace(warm_up=int(warm_up), burst=int(burst))
    train(Path(folder), workload, pace, *rest)


def train(
    folder: Path,
    workload: str,
    pace: Any,
    device: str = "cpu",
    dtype: str = "float32",
    kernels: Kernels = "portable",
) -> None:
    """Run a stage as a recipe's process runs it, until `pace` ends it."""
    keep_freed_memory()
    make_deterministic(0, 1, kernels)
    rows = json.loads((folder / "rows.json").read_text())
    own = folder / "ours" / workload
    own.mkdir(parents=True, exist_ok=True)
    pace.facts["history"] = []

    def hear(event: Mapping[str, Any]) -> None:
        if event["kind"] == "metrics":
            pace.facts["history"].append({"step": event["step"], **event["metrics"]})
        elif event["kind"] == "progress":
            pace.step()

    context = StageContext(seed=0, threads=1, device=device, scratch=own / "scratch", emit=hear)
    context.scratch.mkdir(exist_ok=True)
    learner = {"precision": "bf16" if dtype == "bfloat16" else "fp32"}
    common = {
        "optimization": {
            "optimizer": "adamw",
            "learning_rate": LEARNING_RATE,
            "lr_schedule": "constant",
            "warmup_steps": 0,
        },
        "checkpoint_every": 0,
        "learner": learner,
    }
    STAGES[workload](folder, own, rows, common, context, pace)


def supervised(common: Mapping[str, Any], batch_tokens: int, longest: int) -> dict[str, Any]:
    """A whole data set in every batch, at a constant rate."""
    return {**common, "steps": MANY, "batch_tokens": batch_tokens, "max_length": longest}


def outputs(own: Path, *names: str) -> dict[str, Path]:
    return {name: own / name for name in names}


def sft(folder: Path, own: Path, rows: Any, common: Any, context: StageContext, pace: Pace) -> None:
    learn_texts(folder, own, rows["sft"], common, context, pace)


def packed(
    folder: Path, own: Path, rows: Any, common: Any, context: StageContext, pace: Pace
) -> None:
    common = common | {"learner": common["learner"] | {"packing": True}}
    learn_texts(folder, own, rows["packed"], common, context, pace)


def learn_texts(
    folder: Path, own: Path, rows: Any, common: Any, context: StageContext, pace: Pace
) -> None:
    """The SFT stage on rows that all fit one batch."""
    from tasks.sft.config import SftConfig
    from tasks.sft.stage import run

    traces = [
        Completion(problem(row["prompt"]), row["completion"], "random", 1.0, True, "correct")
        for row in rows
    ]
    write_table(completions_table(traces), own / "traces.parquet", COMPLETIONS)
    pace.facts["tokens"] = num_tokens(folder, rows, "completion")
    # Padding counts in the budget of a step, though none is computed.
    longest = max(map(len, encoded_rows(folder, rows, "completion")))
    config = SftConfig(**supervised(common, len(rows) * longest, longest))
    inputs = {"policy": folder / "policy", "traces": own / "traces.parquet"}
    run(config, inputs, outputs(own, "policy", "curve"), context)


def preference(
    folder: Path, own: Path, rows: Any, common: Any, context: StageContext, pace: Pace
) -> None:
    """Training on the pairs as they are; the stage would hold some of them out for its report."""
    from posttrain.learning.preference.config import PreferenceConfig
    from posttrain.learning.preference.frozen_policy import FrozenPolicy
    from posttrain.learning.preference.training import PairReference, learn
    from posttrain.learning.training.curve import Curve
    from posttrain.learning.training.prepare import prepare_for_training

    pace.facts["tokens"] = sum(
        num_tokens(folder, rows["pairs"], side) for side in ("chosen", "rejected")
    )
    config = PreferenceConfig(**supervised(common, *_of_pairs(folder)))
    policy = load_policy(folder / "policy", device=context.device)
    learn(
        prepare_for_training(policy.model, config.learner, seed=0),
        policy,
        pairs(rows),
        reference=PairReference(FrozenPolicy.of(policy.model)),
        config=config,
        context=context,
        curve=Curve(context),
    )


def reward(
    folder: Path, own: Path, rows: Any, common: Any, context: StageContext, pace: Pace
) -> None:
    """As `preference`, for the reason given there."""
    from posttrain.learning.models.load import Policy
    from posttrain.learning.models.reward_head import start_reward_model
    from posttrain.learning.training.curve import Curve
    from posttrain.learning.training.pairwise import encode_pairs
    from posttrain.learning.training.prepare import prepare_for_training
    from posttrain.learning.training.supervised import train
    from tasks.reward.config import RewardConfig
    from tasks.reward.readings import pair_loss

    pace.facts["tokens"] = sum(
        num_tokens(folder, rows["pairs"], side) for side in ("chosen", "rejected")
    )
    config = RewardConfig(
        parameterization="head", scale=1.0, **supervised(common, *_of_pairs(folder))
    )
    model = start_reward_model(
        folder / "policy", parameterization="head", scale=1.0, device=context.device
    )
    trainable = prepare_for_training(model.model, config.learner, seed=0)
    encoded = encode_pairs(
        Policy(model.model, model.tokenizer),
        pairs(rows),
        config=config,
        context=context,
        where="reward",
    )
    train(
        trainable,
        encoded.objective(
            partial(pair_loss, model, config.centering),
            lambda part, packed: encoded.table(part, packed=packed).batch,
            config=config,
            seed=context.seed,
        ),
        config=config,
        context=context,
        curve=Curve(context),
        prefix="reward",
    )


def _of_pairs(folder: Path) -> tuple[int, int]:
    """Tokens of all sides of all pairs, and of the longest side, end tokens counted."""
    pairs, length = json.loads((folder / "size.json").read_text())["pairs"]
    return 2 * pairs * (length + 16), length + 16


def grpo(
    folder: Path, own: Path, rows: Any, common: Any, context: StageContext, pace: Pace
) -> None:
    from tasks.rl.config import RlStageConfig
    from tasks.rl.stage import run

    size = json.loads((folder / "size.json").read_text())
    problems = [problem(text) for text in rows["prompts"]]
    write_table(problems_table(problems), own / "problems.parquet", PROBLEMS_SCHEMA)
    policy = weights_digest(load_policy(folder / "endless").model)
    write_table(solve_rates(problems, policy), own / "solve_rates.parquet", SOLVE_RATES)
    optimization = common["optimization"] | {"learning_rate": RL_LEARNING_RATE}
    config = RlStageConfig(
        **common | {"optimization": optimization},
        algorithm="grpo_trl",
        steps=MANY,
        problems_per_step=size["groups"][0],
        group_size=size["groups"][1],
        max_tokens=size["new_tokens"],
        # The peer spends time on every group, with signal or without.
        draw={"train_on": "all"},
    )
    inputs = {
        "policy": folder / "endless",
        "problems": own / "problems.parquet",
        "solve_rates": own / "solve_rates.parquet",
    }
    with plugged(["benchmarks.learner.half_verifier"]):
        run(config, inputs, outputs(own, "policy", "rollouts", "curve", "report"), context)


def problem(text: str) -> Problem:
    return Problem(source="random", prompt=text, answer="", difficulty=1, verifier="half")


def pairs(rows: Any) -> pl.DataFrame:
    """Columns that `encode_pairs` reads."""
    frame = pl.DataFrame(rows["pairs"])
    return frame.with_columns(
        pl.Series("problem_id", [str(i) for i in range(len(frame))]),
        source=pl.lit("random"),
        context=pl.lit(""),
        label_prob=pl.lit(1.0),
        step_start=pl.lit(0, pl.Int32),
        weight=pl.lit(1.0),
    )


def solve_rates(problems: list[Problem], policy: str) -> pl.DataFrame:
    """Every problem solved in half of four attempts."""
    rows = [
        {
            "parents": [],
            "problem_id": each.id,
            "source": each.source,
            "difficulty": 1,
            "attempts": 4,
            "solved": 2,
            "solve_rate": 0.5,
            "low": 0.1,
            "high": 0.9,
            "policy": policy,
        }
        for each in problems
    ]
    schema = {name: kind for name, kind in SOLVE_RATES.items() if name != "id"}
    return with_row_ids(pl.DataFrame(rows, schema=schema), IDENTITY["solve_rates"])


def num_tokens(folder: Path, rows: Any, column: str) -> int:
    """Tokens of prompts and completions."""
    return sum(map(len, encoded_rows(folder, rows, column)))


def encoded_rows(folder: Path, rows: Any, column: str) -> list[tuple[int, ...]]:
    """Prompts and completions, encoded as the stage encodes them."""
    encoded = encode_rows(
        load_tokenizer(folder / "policy"),
        [row["prompt"] for row in rows],
        [row[column] for row in rows],
    )
    return [row.ids for row in encoded]


STAGES = {
    "sft": sft,
    "packed": packed,
    "dpo": preference,
    "dpo_precomputed": preference,
    "reward": reward,
    "grpo": grpo,
}

if __name__ == "__main__":
    main()
