"""SFT in bfloat16 on packed rows of 8192 tokens: tokens a second and MFU, ours beside TRL's.

    python -m benchmarks.learner.gpu --peer-python PEER/bin/python --out gpu.json

For a machine with a GPU: a Qwen2 of random weights in the shape of Qwen2.5-0.5B, the same weights,
rows and batch on both sides, in turns, with the checks of `compare`. Without `--peer-python` only
this package is measured. MFU is 6 operations for each parameter and token (the embedding counts
once, as the head that it is tied to), over the rate of this device's own product of two large
bfloat16 matrices. `compare --device cuda --dtype bfloat16` has the other steps.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.learner.compare import Side, check
from benchmarks.learner.machine import described
from benchmarks.learner.settings import SIZES, prepare
from benchmarks.sampling.machine import described as described_alone


def main() -> None:
    """Measure, print and write."""
    options = _options()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "size.json").write_text(json.dumps(prepare(folder, options.size)))
        sides, tokens = started(folder, options)
        for index in range(options.pairs):
            for side in list(sides.values())[:: 1 if index % 2 else -1]:
                side.go()
        for side in sides.values():
            side.end()
    peak = peak_rate(options.device, 8192 if options.device == "cuda" else 512)
    operations = 6 * SIZES[options.size].parameters * tokens
    results = []
    for name, side in sides.items():
        seconds = statistics.median(side.seconds) / options.burst
        results.append(
            {
                "side": name,
                "seconds": [each / options.burst for each in side.seconds],
                "tokens_per_second": tokens / seconds,
                "mfu": operations / seconds / peak,
            }
        )
    Console(width=100).print(table(results, options, tokens))
    if options.out:
        peer = options.peer_python
        report: dict[str, Any] = {"machine": described(peer) if peer else described_alone(1)}
        report |= {"device": options.device, "size": options.size, "tokens_per_step": tokens}
        report |= {"peak_operations_per_second": peak, "results": results}
        options.out.write_text(json.dumps(report, indent=1) + "\n")


def started(folder: Path, options: Any) -> tuple[dict[str, Side], int]:
    """The sides, warmed up and checked, and the tokens of a step."""
    warm_up = str(SIZES[options.size].warm_up)
    arguments = [str(folder), "packed", warm_up, str(options.burst), options.device]
    arguments += ["bfloat16"]
    sides = {"ours": Side(sys.executable, "benchmarks.learner.ours", arguments)}
    own = sides["ours"].hear()["facts"]
    if not options.peer_python:
        return sides, int(own["tokens"])
    sides["TRL"] = Side(options.peer_python, "benchmarks.learner.peer", arguments)
    theirs = sides["TRL"].hear()["facts"]
    print(f"TRL's attention: {theirs['attention']}")
    return sides, check(options.size, "packed", own, theirs, exact=False)


def peak_rate(device: str, width: int) -> float:
    """Operations a second of the best of some products of two bfloat16 matrices."""
    a, b = torch.randn(2, width, width, device=device, dtype=torch.bfloat16)
    best = float("inf")
    for _ in range(10):
        _wait(device)
        begun = time.perf_counter()
        torch.mm(a, b)
        _wait(device)
        best = min(best, time.perf_counter() - begun)
    return 2 * width**3 / best


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def table(results: list[dict[str, Any]], options: Any, tokens: int) -> Table:
    """Tokens a second and MFU."""
    title = f"SFT, {options.size}, {tokens} packed tokens a step, bfloat16 on {options.device}"
    shown = Table(title=title, title_justify="left")
    for column in ("side", "ms a step", "best", "tokens/s", "MFU"):
        shown.add_column(column, justify="left" if column == "side" else "right")
    for each in results:
        seconds = [1000 * s for s in each["seconds"]]
        shown.add_row(
            each["side"],
            f"{statistics.median(seconds):.1f}",
            f"{min(seconds):.1f}",
            f"{each['tokens_per_second']:,.0f}",
            f"{each['mfu']:.1%}",
        )
    return shown


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peer-python", help="interpreter of TRL's environment")
    parser.add_argument("--size", choices=SIZES, default="0.5b")
    parser.add_argument("--device", default="cuda", choices=("cpu", "cuda"))
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--burst", type=int, default=10, help="steps of a turn")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
