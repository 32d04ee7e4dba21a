"""What a step computes for nothing, and how long it waits for its batch.

    python -m benchmarks.learner.waste GSM8K/train.jsonl --json waste.json

Rows of real problems with their solutions, as `sft` encodes them with a tokenizer as `pretrain`
trains one. Padding is the share of the computed tokens that stand for nothing; room is the share of
a step's budget that its rows leave free; a batch is made (gathered into tensors) while the model
waits, so its milliseconds are told for every step.
"""

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.sampling.machine import described
from posttrain.data.batching import Batches, plan_steps
from posttrain.data.rows import TokenTable, encode_rows
from posttrain.learning.models.tokenizer import train_tokenizer

BUDGETS = (2048, 8192, 32768)


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rows", type=Path, help="JSON lines with question and answer")
    parser.add_argument("--vocabulary", type=int, default=4096)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = [json.loads(line) for line in options.rows.read_text().splitlines()]
    asked, said = ([each[name] for each in found] for name in ("question", "answer"))
    tokenizer = train_tokenizer([*asked, *said], vocab_size=options.vocabulary)
    started = time.perf_counter()
    rows = encode_rows(tokenizer, asked, said)
    seconds = time.perf_counter() - started
    results = [measure(rows, budget, packed) for budget in BUDGETS for packed in (False, True)]
    Console(width=100).print(table(results))
    print(f"{len(rows)} rows encoded in {seconds:.2f} s")
    if options.json:
        report = {"machine": described(1), "rows": len(rows), "encoding_seconds": seconds}
        options.json.write_text(json.dumps(report | {"results": results}, indent=1) + "\n")


def measure(rows: Any, budget: int, packed: bool) -> dict[str, Any]:
    """One pass over the rows, in steps of a budget."""
    lengths = [len(row.ids) for row in rows]
    steps = plan_steps(lengths, batch_tokens=budget, epochs=1.0, seed=0, packed=packed)
    taken = [sum(lengths[row] for row in step) for step in steps]
    table = TokenTable(rows, pad=0, packed=packed)
    batches = Batches(steps, lengths, table.batch, packed=packed)
    computed, spent = 0, []
    for step in range(len(steps)):
        started = time.perf_counter()
        (batch,) = batches.micro_batches(step)
        spent.append(time.perf_counter() - started)
        computed += batch.input_ids_BT.numel()
    return {
        "budget": budget,
        "packed": packed,
        "steps": len(steps),
        "padding": 1 - sum(lengths) / computed,
        # One step of a pass is whatever is left.
        "room": 1 - (sum(lengths) - min(taken)) / (budget * (len(steps) - 1)),
        "milliseconds": 1000 * statistics.median(spent),
    }


def table(results: list[dict[str, Any]]) -> Table:
    """A line for each budget and layout."""
    shown = Table(title="A pass over the rows", title_justify="left")
    for column in ("tokens a step", "rows", "steps", "padding", "room left", "ms a batch"):
        shown.add_column(column, justify="left" if column == "rows" else "right")
    for each in results:
        shown.add_row(
            f"{each['budget']:,}",
            "packed" if each["packed"] else "padded",
            str(each["steps"]),
            f"{each['padding']:.1%}",
            f"{each['room']:.1%}",
            f"{each['milliseconds']:.2f}",
        )
    return shown


if __name__ == "__main__":
    main()
