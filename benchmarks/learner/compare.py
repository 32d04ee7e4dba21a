"""Seconds a step against TRL: the same weights, tokens, batch and threads, in turns.

    python -m benchmarks.learner.compare --peer-python PEER/bin/python --out compare.json

TRL lives in an environment of its own (see the README). For each workload both sides are started
as children with one thread, warmed up, checked, and then run bursts of steps in turn, so that a
busy machine slows them alike. The checks: equal tokens a step, more than none; a first loss of
ln V (SFT) and ln 2 (DPO, reward); then the same losses as the peer's over the first ten steps, to
1e-3; for RL, rewards that are neither all 0 nor all 1. Ratios are taken burst by burst.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.learner.machine import described
from benchmarks.learner.settings import SIZES, prepare

ROOT = Path(__file__).parents[2]
TARGETS = {"grpo": 0.4, "sft": 0.6, "dpo": 0.6, "dpo_precomputed": 0.6, "reward": 0.6}
TARGETS["packed"] = 0.6
CPU = [name for name in TARGETS if name != "packed"]
LARGE = dict.fromkeys(("grpo", "sft", "dpo"), 0.7)
LARGE |= dict.fromkeys(("packed", "reward", "dpo_precomputed"), 1.0)
"""At 50 million parameters, where nearly all of a step is products. The first three have products
that need not be: of padding, of the reference at every step, of prompts that a group shares. Rows
of the others are of one length, or packed, so both sides have the same to compute."""


class Side:
    """One child, and what it said."""

    def __init__(self, python: str, module: str, arguments: list[str]) -> None:
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "HF_HUB_OFFLINE": "1",
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        }
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.child = subprocess.Popen(
            [python, "-m", module, *arguments],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
        )
        self.seconds: list[float] = []
        self.processor: list[float] = []

    def hear(self) -> dict[str, Any]:
        """The next answer; a child that is gone takes this process with it."""
        assert self.child.stdout is not None
        line = self.child.stdout.readline()
        if not line:
            self.log.seek(0)
            sys.exit(f"{self.child.args}: ended\n{self.log.read()[-4000:]}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def go(self) -> None:
        """Let it run one burst, and note its seconds."""
        assert self.child.stdin is not None
        self.child.stdin.write("go\n")
        self.child.stdin.flush()
        answer = self.hear()
        self.seconds.append(float(answer["seconds"]))
        self.processor.append(float(answer["processor"]))

    def end(self) -> None:
        """Close its input, at which it ends."""
        assert self.child.stdin is not None
        self.child.stdin.close()
        self.child.wait(timeout=60)


def main() -> None:
    """Prepare, measure every workload, print and write."""
    options = _options()
    results = []
    with tempfile.TemporaryDirectory() as scratch:
        for size in options.sizes:
            folder = Path(scratch) / size
            folder.mkdir()
            facts = prepare(folder, size)
            (folder / "size.json").write_text(json.dumps(facts))
            for workload in options.workloads:
                results.append(measure(folder, size, workload, options))
                Console(width=110).print(table(results[-1:]))
    Console(width=110).print(table(results))
    if options.out:
        report = {
            "machine": described(options.peer_python),
            "device": options.device,
            "dtype": options.dtype,
            "results": results,
        }
        options.out.write_text(json.dumps(report, indent=1) + "\n")


def measure(folder: Path, size: str, workload: str, options: Any) -> dict[str, Any]:
    """Both sides in turn, `pairs` bursts each."""
    burst, warm_up = options.burst or SIZES[size].burst, SIZES[size].warm_up
    arguments = [str(folder), workload, str(warm_up), str(burst), options.device, options.dtype]
    ours = Side(sys.executable, "benchmarks.learner.ours", arguments)
    own = ours.hear()["facts"]
    peer = Side(options.peer_python, "benchmarks.learner.peer", arguments)
    theirs = peer.hear()["facts"]
    tokens = check(size, workload, own, theirs, exact=options.dtype == "float32")
    for index in range(options.pairs):
        for side in (ours, peer) if index % 2 else (peer, ours):
            side.go()
    ours.end()
    peer.end()
    ratios = [a / b for a, b in zip(ours.seconds, peer.seconds, strict=True)]
    return {
        "size": size,
        "workload": workload,
        "tokens_per_step": tokens,
        "burst": burst,
        "load": round(os.getloadavg()[0], 1),
        "ours": [seconds / burst for seconds in ours.seconds],
        "peer": [seconds / burst for seconds in peer.seconds],
        "ratio_median": statistics.median(ratios),
        "ratio_processor": statistics.median(
            a / b for a, b in zip(ours.processor, peer.processor, strict=True)
        ),
        "ratio_best": min(ours.seconds) / min(peer.seconds),
        "target": (LARGE if size == "50m" else TARGETS)[workload],
    }


def check(size: str, workload: str, own: Any, theirs: Any, *, exact: bool) -> int:
    """Refuse to time two sides that do not do the same; the tokens of a step."""
    where = f"{size} {workload}"
    if workload == "grpo":
        wanted = math.prod(SIZES[size].groups) * SIZES[size].new_tokens
        drawn = {int(step["rl/tokens_drawn"]) for step in own["history"] if "rl/loss" in step}
        assert drawn == {wanted}, f"{where}: ours drew {drawn} tokens, not {wanted}"
        assert set(theirs["lengths"]) == {wanted}, f"{where}: the peer drew {theirs['lengths']}"
        rewards = [step["rl/reward"] for step in own["history"] if "rl/reward" in step]
        for each in (rewards, theirs["rewards"]):
            assert 0.2 < statistics.mean(each) < 0.8, f"{where}: rewards {each}"
        return wanted
    assert own["tokens"] == theirs["tokens"] > 0, f"{where}: {own['tokens']}, {theirs['tokens']}"
    losses = [v for step in own["history"] for k, v in step.items() if k.endswith("/loss")]
    first, mean = (step["loss"] for step in theirs["history"][:2])
    language = workload in ("sft", "packed")
    # A head tied to embeddings of deviation 0.02 says a little at random: half its variance more.
    at_random = math.log(SIZES[size].vocabulary) + SIZES[size].hidden * 0.02**2 / 2
    start = at_random if language else math.log(2)
    slack = 0.05 if language else 1e-4
    for each in (losses[0], first):
        assert abs(each - start) < slack, f"{where}: the first loss is {each}, not {start}"
    compared = min(10, SIZES[size].warm_up - 1)
    gap = max(abs(losses[0] - first), abs(statistics.mean(losses[1:compared]) - mean))
    assert gap < (1e-3 if exact else 3e-2), f"{where}: losses differ by {gap}"
    return int(own["tokens"])


def table(results: list[dict[str, Any]]) -> Table:
    """Milliseconds a step and ratios."""
    shown = Table(title="Milliseconds a step, ours and TRL's", title_justify="left")
    for column in (
        "model",
        "step",
        "tokens",
        "ours",
        "best",
        "TRL",
        "best",
        "ratio",
        "of best",
        "of processor",
        "target",
    ):
        shown.add_column(column, justify="left" if column in ("model", "step") else "right")
    for each in results:
        own, theirs = ([1000 * s for s in each[side]] for side in ("ours", "peer"))
        shown.add_row(
            each["size"],
            each["workload"],
            str(each["tokens_per_step"]),
            *(f"{f(side):.1f}" for side in (own, theirs) for f in (statistics.median, min)),
            f"{each['ratio_median']:.2f}",
            f"{each['ratio_best']:.2f}",
            f"{each['ratio_processor']:.2f}",
            f"{each['target']:.1f}",
        )
    return shown


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peer-python", required=True, help="interpreter of TRL's environment")
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=["156k", "1.25m"])
    parser.add_argument("--workloads", nargs="+", choices=TARGETS, default=CPU)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--burst", type=int, help="steps of a turn")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
