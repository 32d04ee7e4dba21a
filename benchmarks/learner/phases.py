"""Where a step's time goes, and the fraction of the machine's matmul peak that it makes.

    python -m benchmarks.learner.phases [--sizes 156k 1.25m] [--json phases.json]

The same stages on the same weights and tokens as in `compare`, in this process with one thread.
Seconds are the processor's, so that a busy machine counts for little. The peak is the best rate of
a product of two 1024 x 1024 matrices in the same minute. Operations are those of the matrices that
the pass has to multiply by (two for each weight and token forward, four backward) and of attention;
what is computed again or for nothing counts as time alone.
"""

import argparse
import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.learner.ours import STAGES, train
from benchmarks.learner.settings import SIZES, prepare
from benchmarks.sampling.machine import described
from posttrain.learning.models import logprobs
from posttrain.learning.models.optim import Optimizer
from posttrain.learning.rollouts.engines.torch_engine import TorchRolloutEngine

PHASES = ("sampling", "layers, forward", "head, forward", "backward", "clipping and AdamW")
PLACES: tuple[tuple[str, Any, str], ...] = (
    ("sampling", TorchRolloutEngine, "sample"),
    ("layers, forward", logprobs, "fast_hidden_states"),
    ("layers, forward", logprobs, "hidden_states"),
    ("head, forward", logprobs, "_logprobs"),
    ("backward", torch.Tensor, "backward"),
    ("clipping and AdamW", Optimizer, "step"),
)


class Enough(BaseException):
    """Ends a stage from within: no error, so nothing in between takes it for one."""


class Count:
    """Stands in for the parent's `Pace`: notes when steps end, and ends the stage."""

    def __init__(self, *, warm_up: int, steps: int) -> None:
        self.warm_up, self.steps = warm_up, steps
        self.facts: dict[str, Any] = {}
        self.spent: Counter[str] = Counter()
        self.ends: list[float] = []

    def step(self) -> None:
        """Call at the end of every step."""
        self.ends.append(time.process_time())
        if len(self.ends) == self.warm_up:
            self.spent.clear()
        if len(self.ends) == self.warm_up + self.steps:
            raise Enough

    def timed(self, phase: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, its seconds added to the phase."""

        def run(*given: Any, **options: Any) -> Any:
            started = time.process_time()
            try:
                return function(*given, **options)
            finally:
                self.spent[phase] += time.process_time() - started

        return run

    def phases(self) -> dict[str, float]:
        """Processor milliseconds a step by phase; what no phase accounts for is the rest."""
        whole = 1000 * (self.ends[-1] - self.ends[self.warm_up - 1]) / self.steps
        found = {name: 1000 * self.spent[name] / self.steps for name in PHASES}
        return found | {"the rest": whole - sum(found.values()), "step": whole}


def main() -> None:
    """Measure, print and write."""
    options = _options()
    torch.set_num_threads(1)
    results = []
    with tempfile.TemporaryDirectory() as scratch:
        for size in options.sizes:
            folder = Path(scratch) / size
            folder.mkdir()
            (folder / "size.json").write_text(json.dumps(prepare(folder, size)))
            for workload in options.workloads:
                results.append(measure(folder, size, workload, options.steps))
    Console(width=110).print(table(results))
    if options.json:
        report = {"machine": described(1), "results": results}
        options.json.write_text(json.dumps(report, indent=1) + "\n")


def measure(folder: Path, size: str, workload: str, steps: int) -> dict[str, Any]:
    """Milliseconds a step by phase, and the operations a second against the peak."""
    count = Count(warm_up=5, steps=steps)
    originals = [(owner, name, getattr(owner, name)) for _, owner, name in PLACES]
    peak = peak_rate()
    for (phase, owner, name), (_, _, function) in zip(PLACES, originals, strict=True):
        setattr(owner, name, count.timed(phase, function))
    try:
        train(folder, workload, count)
    except Enough:
        pass
    finally:
        for owner, name, function in originals:
            setattr(owner, name, function)
    phases, billions = count.phases(), operations(size, workload) / 1e9
    return {
        "size": size,
        "workload": workload,
        "milliseconds": phases,
        "billions_of_operations": billions,
        "peak_billions_per_second": max(peak, peak_rate()),
        "fraction_of_peak": billions / (phases["step"] / 1000) / max(peak, peak_rate()),
    }


def operations(size: str, workload: str) -> float:
    """Of one step: multiplications and additions in the products that cannot be left out."""
    shape = SIZES[size]
    width = shape.hidden // shape.heads
    keys = 2 * shape.hidden * shape.kv_heads * width
    layer = keys + shape.hidden * (2 * shape.hidden + 3 * shape.intermediate)
    head = shape.hidden * shape.vocabulary
    prompt = shape.prompt

    def passes(tokens: int, taught: int, length: int) -> float:
        """Forward and backward over `tokens`, and the head where `taught`."""
        attention = 2 * shape.hidden * length / 2 * tokens
        return 6 * (shape.layers * (layer * tokens + attention) + head * taught)

    if workload in ("sft", "packed"):
        count, length = shape.packed
        rows = shape.rows if workload == "sft" else (length,) * count
        return sum(passes(length, length - 1, length) for length in rows)
    if workload == "grpo":
        problems, group = shape.groups
        drawn = shape.new_tokens
        tokens = problems * (prompt + group * drawn)
        learned = passes(tokens, problems * group * drawn, prompt + drawn)
        # Every token is drawn by one forward pass, a third of the work of learning from it.
        return learned * 4 / 3
    pairs, length = shape.pairs
    answers = 2 * pairs * (length - prompt)
    tokens = pairs * prompt + answers
    if workload == "reward":
        # One state a row is wanted: of the last layer, all tokens need keys and values alone.
        below = passes(tokens, 0, length) * (shape.layers - 1) / shape.layers
        return below + 6 * (keys * tokens + layer * 2 * pairs)
    # DPO's reference is computed once, before the first step.
    return passes(tokens, answers, length)


def peak_rate() -> float:
    """Billions of operations a second of the best of some products of square matrices."""
    a, b = torch.randn(2, 1024, 1024)
    best = float("inf")
    for _ in range(8):
        started = time.process_time()
        torch.mm(a, b)
        best = min(best, time.process_time() - started)
    return 2 * 1024**3 / best / 1e9


def table(results: list[dict[str, Any]]) -> Table:
    """Milliseconds by phase."""
    columns = (*PHASES, "the rest", "step")
    shown = Table(title="Processor milliseconds of a step", title_justify="left")
    for column in ("model", "step of", *columns, "of peak"):
        shown.add_column(column, justify="left" if column in ("model", "step of") else "right")
    for each in results:
        shown.add_row(
            each["size"],
            each["workload"],
            *(f"{each['milliseconds'][name]:.1f}" for name in columns),
            f"{each['fraction_of_peak']:.0%}",
        )
    return shown


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=["156k", "1.25m"])
    workloads = [name for name in STAGES if name != "dpo_precomputed"]
    parser.add_argument("--workloads", nargs="+", choices=workloads, default=workloads)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
