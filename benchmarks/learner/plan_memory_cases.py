"""The cases that `plan_memory` measures: stages as recipes run them, on a random model of 50m."""

import importlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from benchmarks.learner.ours import problem, solve_rates
from benchmarks.learner.settings import SIZES, SPECIAL, Size, save
from posttrain.data.schemas import (
    COMPLETIONS,
    IDENTITY,
    PAIRS,
    PROBLEMS,
    SOLVE_RATES,
    Completion,
    completions_table,
    problems_table,
    with_row_ids,
)
from posttrain.data.tables import write_table
from posttrain.stage.config import StageConfig
from posttrain.stage.context import StageContext
from posttrain.stage.slots import plugged
from posttrain.stage.spec import Task

SIZE = Size(32_000, 512, 2048, 9, 8, 2, new_tokens=496, parameters=50_610_432, positions=2048)
"""A Qwen2 with tied embeddings."""
PROMPT = 16
"""Tokens before an answer that RL draws."""


@dataclass(frozen=True)
class Case:
    """A stage, its section of the recipe, and how long its rows are."""

    stage: str
    section: Mapping[str, Any]
    tokens: int
    processes: int = 1
    rows: int = 8


_ADAMW = {"optimizer": "adamw", "learning_rate": 1e-5, "warmup_steps": 0}
_SHORT = {"steps": 2, "checkpoint_every": 0, "optimization": _ADAMW}

_IN_8_BITS = {**_ADAMW, "states": "8bit", "rounding": "stochastic"}
_FREE = {"in_backward": True, "max_grad_norm": None}
_NARROW = {
    **_SHORT,
    "max_length": 1024,
    "batch_tokens": 1024,
    "learner": {"weights": "bf16", "activation_checkpointing": True},
}
_WIDE_ROWS = {"max_length": 2048, "batch_tokens": 2048}
_LORA = {"lora": {"rank": 16}}
_PACKED = {
    **_SHORT,
    "max_length": 1024,
    "batch_tokens": 8192,
    "learner": {"packing": True, "activation_checkpointing": True},
}

CASES: Mapping[str, Case] = {
    "sft": Case(
        "sft",
        {**_SHORT, "max_length": 1024, "batch_tokens": 4096, "micro_batch_tokens": 2048},
        1024,
    ),
    "dpo": Case(
        "preference",
        {
            **_SHORT,
            "max_length": 512,
            "batch_tokens": 2048,
            # For the report, which looks at the policy when it has learned.
            "sampling": {"problems": 2, "num_samples": 2, "max_tokens": 8},
        },
        512,
    ),
    "reward": Case(
        "reward",
        {
            **_SHORT,
            "optimization": {**_ADAMW, "optimizer": "muon"},
            "parameterization": "head",
            "scale": 1.0,
            "max_length": 1024,
            "batch_tokens": 2048,
        },
        1024,
    ),
    "grpo": Case(
        "rl",
        {
            "checkpoint_every": 0,
            "optimization": _ADAMW,
            "steps": 2,
            "algorithm": {"preset": "grpo"},
            "problems_per_step": 2,
            "group_size": 4,
            "max_tokens": SIZE.new_tokens,
            "updates": {"micro_batch_tokens": 2048},
        },
        SIZE.new_tokens,
    ),
    "lora": Case(
        "sft",
        {**_SHORT, "max_length": 2048, "batch_tokens": 2048, "learner": {"lora": {"rank": 16}}},
        2048,
    ),
    "bf16, 8 bits": Case("sft", {**_NARROW, "optimization": _IN_8_BITS}, 1024),
    "in backward": Case("sft", {**_NARROW, "optimization": {**_IN_8_BITS, **_FREE}}, 1024),
    "lora, bf16": Case(
        "sft", {**_SHORT, **_WIDE_ROWS, "learner": {**_LORA, "weights": "bf16"}}, 2048
    ),
    "lora, nf4": Case(
        "sft", {**_SHORT, **_WIDE_ROWS, "learner": {**_LORA, "weights": "nf4"}}, 2048
    ),
    "8k tokens": Case("sft", _PACKED, 1024, rows=40),
    "fsdp": Case("sft", {**_SHORT, "max_length": 1024, "batch_tokens": 2048}, 1024, processes=2),
}


def prepare(folder: Path) -> None:
    """Write the policy, and what each case reads.

    Args:
        folder: Where to.

    """
    words = [*SPECIAL, *(f"w{index}" for index in range(SIZE.vocabulary - len(SPECIAL)))]
    save(folder / "policy", SIZE, words, never_ends=True)
    tiny = SIZES["tiny"]
    save(folder / "tiny", tiny, words[: tiny.vocabulary], never_ends=True)
    for name, case in CASES.items():
        (folder / name).mkdir()
        WRITERS[case.stage](folder / name, case, words[len(SPECIAL) :])


def _text(words: list[str], count: int, first: int) -> str:
    return " ".join(words[(first + 7 * place) % len(words)] for place in range(count))


def _write_traces(folder: Path, case: Case, words: list[str]) -> None:
    # One token of prompt and one at the end.
    traces = [
        Completion(
            problem(words[row]), " " + _text(words, case.tokens - 2, row), "random", 1.0, True, ""
        )
        for row in range(case.rows)
    ]
    write_table(completions_table(traces), folder / "traces.parquet", COMPLETIONS)


def _write_pairs(folder: Path, case: Case, words: list[str]) -> None:
    rows = [
        {
            "parents": [],
            "problem_id": f"{row}",
            "source": "random",
            "prompt": words[row],
            "chosen": " " + _text(words, case.tokens - 2, row),
            "rejected": " " + _text(words, case.tokens - 2, row + 99),
            "split": "heldout" if row < 2 else "train",
            "chosen_score": 1.0,
            "rejected_score": 0.0,
            "label_prob": 1.0,
            "rationale": "",
            "step_start": 0,
            "weight": 1.0,
            "context": "",
        }
        for row in range(case.rows)
    ]
    schema = {name: kind for name, kind in PAIRS.items() if name != "id"}
    table = with_row_ids(pl.DataFrame(rows, schema=schema), IDENTITY["pairs"])
    write_table(table, folder / "pairs.parquet", PAIRS)


def _write_problems(folder: Path, case: Case, words: list[str]) -> None:
    from posttrain.learning.models.load import load_policy, weights_digest

    posed = [problem(_text(words, PROMPT, row)) for row in range(case.rows)]
    write_table(problems_table(posed), folder / "problems.parquet", PROBLEMS)
    digest = weights_digest(load_policy(folder.parent / "policy").model)
    write_table(solve_rates(posed, digest), folder / "solve_rates.parquet", SOLVE_RATES)


WRITERS = {
    "sft": _write_traces,
    "preference": _write_pairs,
    "reward": _write_pairs,
    "rl": _write_problems,
}


def config_of(name: str) -> tuple[Task, StageConfig]:
    """The task of a case, and its section as the recipe's parser reads it."""
    case = CASES[name]
    task = importlib.import_module(f"tasks.{case.stage}").TASK
    return task, task.config.parse(dict(case.section), where=case.stage)


def warm_up(folder: Path, name: str) -> None:
    """Load a tiny model and take a step, so that all libraries of a case are in place.

    Args:
        folder: As `prepare` left it.
        name: Of the case.

    """
    import torch

    from posttrain.learning.models.build_optim import build_optimizer
    from posttrain.learning.models.load import load_policy
    from posttrain.learning.models.logprobs import wanted_logprobs
    from posttrain.learning.training.prepare import prepare_for_training

    task, config = config_of(name)
    importlib.import_module(task.entry.partition(":")[0])
    model = load_policy(folder / "tiny").model
    prepare_for_training(model, config.learner, seed=0)
    ids_BT = torch.arange(16)[None]
    found_N, _ = wanted_logprobs(model, ids_BT, wanted_BT=ids_BT > 0)
    found_N.sum().backward()
    build_optimizer(model).step(learning_rate=0.0, max_grad_norm=1.0)


def run(folder: Path, name: str) -> None:
    """Run a case's stage in this process, in a process group that is open where it has several.

    Args:
        folder: As `prepare` left it.
        name: Of the case.

    """
    own, (task, config) = folder / name, config_of(name)
    module, _, function = task.entry.partition(":")
    inputs = {path.stem: path for path in own.glob("*.parquet")} | {"policy": folder / "policy"}
    made = own / f"made-{os.environ.get('RANK', 0)}"
    made.mkdir(exist_ok=True)
    outputs = {port: made / (port + each.type.suffix) for port, each in task.outputs.items()}
    context = replace(StageContext.quiet(made / "scratch"), processes=CASES[name].processes)
    with plugged(["benchmarks.learner.half_verifier"]):
        getattr(importlib.import_module(module), function)(config, inputs, outputs, context)
