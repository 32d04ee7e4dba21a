"""The cases that `plan_memory` measures: stages as recipes run them, on a random model of 50m.

A case is run by `python -m benchmarks.learner.plan_memory --case NAME --how HOW FOLDER`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from benchmarks.learner.ours import problem, solve_rates
from benchmarks.learner.settings import END, PAD, SPECIAL, Size, save
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
    rows: int = field(default=8)


_ADAMW = {"optimizer": "adamw", "learning_rate": 1e-5, "warmup_steps": 0}
_SHORT = {"steps": 3, "checkpoint_every": 0, "optimization": _ADAMW}

CASES: Mapping[str, Case] = {
    "sft": Case("sft", {**_SHORT, "batch_tokens": 4096, "micro_batch_tokens": 2048}, 1024),
    "dpo": Case("preference", {**_SHORT, "batch_tokens": 2048}, 512),
    "reward": Case(
        "reward",
        {
            **_SHORT,
            "optimization": {**_ADAMW, "optimizer": "muon"},
            "parameterization": "head",
            "scale": 1.0,
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
        {**_SHORT, "batch_tokens": 2048, "learner": {"lora": {"rank": 16}}},
        2048,
    ),
    "fsdp": Case("sft", {**_SHORT, "batch_tokens": 2048}, 1024, processes=2),
}


def prepare(folder: Path) -> None:
    """Write the policy, and what each case reads.

    Args:
        folder: Where to.

    """
    words = [*SPECIAL, *(f"w{index}" for index in range(SIZE.vocabulary - len(SPECIAL)))]
    save(folder / "policy", SIZE, words, never_ends=True)
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


def run(folder: Path, name: str, processes: int) -> None:
    """Run a case's stage in this process.

    Args:
        folder: As `prepare` left it.
        name: Of the case.
        processes: That share it; above 1, a process group is open already.

    """
    import importlib

    from posttrain.stage.context import StageContext
    from posttrain.stage.slots import plugged

    case, own = CASES[name], folder / name
    task = importlib.import_module(f"tasks.{case.stage}").TASK
    module, _, function = task.entry.partition(":")
    inputs = {path.stem: path for path in own.glob("*.parquet")} | {"policy": folder / "policy"}
    made = own / f"made-{_rank()}"
    made.mkdir(exist_ok=True)
    outputs = {port: made / (port + each.type.suffix) for port, each in task.outputs.items()}
    context = StageContext(
        seed=0, threads=1, device="cpu", scratch=made / "scratch", processes=processes
    )
    context.scratch.mkdir(exist_ok=True)
    with plugged(["benchmarks.learner.half_verifier"]):
        config = task.config.parse(dict(case.section), where=case.stage)
        getattr(importlib.import_module(module), function)(config, inputs, outputs, context)


def _rank() -> int:
    import os

    return int(os.environ.get("RANK", 0))
