"""Small stages that train in one process or in several, started as the executor starts them."""

import hashlib
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
import psutil
import pytest
import torch

from posttrain.data.rows import TokenTable, encode_rows
from posttrain.data.schemas import (
    COMPLETIONS,
    IDENTITY,
    Completion,
    Problem,
    completions_table,
    with_row_ids,
)
from posttrain.data.tables import write_table
from posttrain.learning.models.build import build_llama
from posttrain.learning.models.load import save_policy
from posttrain.learning.models.logprobs import wanted_logprobs
from posttrain.learning.models.tokenizer import train_tokenizer
from posttrain.pipeline.execution.assignment import Assignment
from posttrain.pipeline.execution.supervise import Limits, StageOutcome, StageProcesses

STEPS = {
    "batch_tokens": 160,
    "epochs": 2.0,
    "optimization": {"warmup_steps": 2, "learning_rate": 3e-3},
    "checkpoint_every": 2,
}


@dataclass
class Made:
    """How an attempt ended, and what it left."""

    outcome: StageOutcome
    folder: Path
    events: list[Mapping[str, Any]] = field(default_factory=list)

    def curve(self) -> dict[tuple[int, str], float]:
        """The learning curve by step and metric."""
        rows = pl.read_parquet(self.folder / "curve.parquet").rows()
        return {(step, metric): value for step, metric, value in rows}

    def digests(self) -> dict[str, str]:
        """Of every file that the stage made."""
        files = [*self.folder.glob("*.parquet"), *self.folder.glob("*.json")]
        files += self.folder.glob("*/*.*")
        found = [file for file in files if file.is_file() and "scratch" not in file.parts]
        return {
            str(file.relative_to(self.folder)): hashlib.sha256(file.read_bytes()).hexdigest()
            for file in sorted(found)
        }

    def notes(self) -> list[str]:
        """What rank 0 told the reader of the log."""
        return [str(event["line"]) for event in self.events if event["kind"] == "note"]


@dataclass(frozen=True)
class Stages:
    """Runs tasks on the material, each attempt in processes of its own."""

    processes: StageProcesses
    inputs: Mapping[str, Path]
    steps: Mapping[str, Any]

    def run(
        self,
        task: str,
        folder: Path,
        *,
        processes: int = 2,
        watch: Callable[[Mapping[str, Any]], None] = lambda _event: None,
        config: Mapping[str, Any] | None = None,
        inputs: Mapping[str, Path] | None = None,
    ) -> Made:
        """One attempt; a second one in the same folder goes on from the first one's checkpoints."""
        declared = importlib.import_module(f"tasks.{task}").TASK
        folder.mkdir(parents=True, exist_ok=True)
        made = Made(StageOutcome(ok=False), folder)

        def seen(event: Mapping[str, Any]) -> None:
            made.events.append(event)
            watch(event)

        assignment = Assignment(
            stage=task,
            entry=declared.entry,
            config=declared.config.parse(
                (config or {}) if inputs else {**self.steps, **(config or {})}, where=task
            ),
            inputs=inputs or {port: self.inputs[port] for port in INPUTS[task]},
            outputs={n: folder / (n + port.type.suffix) for n, port in declared.outputs.items()},
            types={n: port.type for n, port in declared.outputs.items()},
            scratch=folder / "scratch",
            log=folder / f"{task}.log",
            seed=3,
            threads=2,
            device="cpu",
            processes=processes,
        )
        made.outcome = self.processes.attempt(assignment, Limits(300, 200), seen)
        return made

    @staticmethod
    def ranks() -> dict[int, psutil.Process]:
        """The processes that share a stage right now, by rank."""
        found = {}
        for process in psutil.Process().children(recursive=True):
            try:
                if "posttrain.pipeline.execution.rank" in process.cmdline():
                    found[int(process.environ()["RANK"])] = process
            except (psutil.NoSuchProcess, psutil.ZombieProcess, KeyError):
                continue
        return found


INPUTS = {
    "pretrain": ("corpus",),
    "sft": ("policy", "traces"),
    "reward": ("policy", "samples"),
    "preference": ("policy", "samples"),
}


def _answers() -> list[Completion]:
    answers = []
    for index in range(40):
        a, b = index % 10, index // 10 % 10
        problem = Problem("sums", f"{a} + {b} =", str(a + b), 1, "exact")
        for offset in (0, 1):
            # Lengths differ, so that the processes' shares do.
            text = f"{a} + {b} = {a + b + offset}\n" + "so " * (index % 4)
            answers.append(
                Completion(problem, text, "teacher", 1.0 - offset, offset == 0, "correct")
            )
    return answers


@pytest.fixture(scope="session")
def stages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("material")
    frame = with_row_ids(completions_table(_answers()), IDENTITY["completions"])
    write_table(frame, folder / "all.parquet", COMPLETIONS)
    write_table(frame.filter("verified"), folder / "verified.parquet", COMPLETIONS)
    tokenizer = train_tokenizer([*frame["prompt"], *frame["text"]], vocab_size=290)
    save_policy(
        build_llama(tokenizer, hidden=16, layers=2, heads=2, seed=0), tokenizer, folder / "policy"
    )
    processes = StageProcesses(threads=1)
    yield Stages(
        processes,
        {
            "corpus": folder / "all.parquet",
            "samples": folder / "all.parquet",
            "traces": folder / "verified.parquet",
            "policy": folder / "policy",
        },
        STEPS,
    )
    processes.close()


@pytest.fixture(scope="session")
def sides():
    """Prompts and answers: 1 where the prompt says up, and 2 where it says down."""
    return [
        (f"{side} {n} =", answer) for n in range(6) for side, answer in (("up", "1"), ("down", "2"))
    ]


@pytest.fixture(scope="session")
def guesser(tmp_path_factory, sides):
    """Directory of a policy that knows how to answer, and guesses what."""
    prompts = [prompt for prompt, _ in sides for _ in range(2)]
    texts = ["#### 1", "#### 2"] * len(sides)
    tokenizer = train_tokenizer([*prompts, *texts], vocab_size=280)
    model = build_llama(tokenizer, hidden=16, layers=2, heads=2, seed=0, max_length=64)
    rows = encode_rows(tokenizer, prompts, texts)
    batch = TokenTable(rows, pad=tokenizer.pad_token_id).batch(range(len(rows)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(100):
        logprobs, _ = wanted_logprobs(model, batch.input_ids_BT, wanted_BT=batch.wanted_BT)
        (-logprobs.mean()).backward()
        optimizer.step()
        optimizer.zero_grad()
    path = tmp_path_factory.mktemp("guesser") / "policy"
    save_policy(model, tokenizer, path)
    return path
