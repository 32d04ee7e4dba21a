"""Who resumes exactly in the middle of a generation buffer: this package's RL, and TRL's GRPO.

    python -m benchmarks.learner.buffer_kill --peer-python PEER/bin/python --out buffer_kill.json

Every side makes 12 updates from the same policy: twice without a break, which shows that it is
deterministic at all, and once with a checkpoint, a `kill -9` some updates later, and a new process
that goes on. Then the final weights are compared by digest. TRL lives in an environment of its own.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.learner.machine import described
from benchmarks.learner.settings import SIZES, prepare
from posttrain.stage.hashing import sha256_of_file

ROOT = Path(__file__).parents[2]
SIDES = {
    "TRL": "benchmarks.learner.buffer_kill_peer",
    "ours": "benchmarks.learner.buffer_kill_ours",
}
UPDATES = 12


@dataclass(frozen=True)
class Case:
    """How a generation of 32 rollouts is learned from, and when the run is cut."""

    name: str
    minibatches: int
    epochs: int
    checkpoint: int
    """Updates after which a checkpoint is written."""
    kill: int
    """Updates after which the process is killed."""

    @property
    def within(self) -> bool:
        """Whether the checkpoint is in the middle of a generation."""
        return self.checkpoint % (self.minibatches * self.epochs) != 0


CASES = [
    Case("one update a generation", 1, 1, checkpoint=6, kill=8),
    Case("four updates a generation", 4, 1, checkpoint=8, kill=10),
    Case("four updates a generation", 4, 1, checkpoint=6, kill=9),
    Case("two passes over a generation", 1, 2, checkpoint=5, kill=8),
]


def main() -> None:
    """Run every case on both sides, print and write."""
    options = _options()
    results = []
    with tempfile.TemporaryDirectory() as scratch:
        given = Path(scratch) / "given"
        given.mkdir()
        (given / "size.json").write_text(json.dumps(prepare(given, options.size)))
        for index, case in enumerate(CASES):
            for side in SIDES:
                python = options.peer_python if side == "TRL" else sys.executable
                folder = Path(scratch) / f"{side}-{index}"
                results.append(compare(python, side, case, given, folder))
                Console(width=130).print(table(results[-1:]))
    Console(width=130).print(table(results))
    if options.out:
        report = {"machine": described(options.peer_python), "model": options.size}
        options.out.write_text(json.dumps(report | {"results": results}, indent=1) + "\n")


def compare(python: str, side: str, case: Case, given: Path, folder: Path) -> dict[str, Any]:
    """The digests of two whole runs and of one that was killed and went on."""

    def final(name: str, *kills: int) -> str:
        own = folder / name
        own.mkdir(parents=True)
        for kill in (*kills, 0):
            job = {"given": str(given), "folder": str(own), "updates": UPDATES, **asdict(case)}
            launch(python, SIDES[side], job | {"kill": kill})
        return sha256_of_file(own / "final/model.safetensors")

    whole, again, resumed = final("whole"), final("again"), final("resumed", case.kill)
    facts = {"side": side, **asdict(case), "within": case.within}
    return facts | {"whole": whole, "again": again, "resumed": resumed}


def launch(python: str, module: str, job: dict[str, Any]) -> None:
    """One process; it must end by the kill where there is one, and well where there is none."""
    done = subprocess.run(
        [python, "-m", module, json.dumps(job)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    wanted = -signal.SIGKILL if job["kill"] else 0
    if done.returncode != wanted:
        sys.exit(f"{module}: ended with {done.returncode}, not {wanted}\n{done.stderr[-4000:]}")


def table(results: list[dict[str, Any]]) -> Table:
    """Yes and no."""
    shown = Table(title=f"{UPDATES} updates, final weights by digest", title_justify="left")
    for column in ("generation", "checkpoint after", "", "killed after", "side"):
        shown.add_column(column)
    for column in ("two whole runs", "killed and resumed"):
        shown.add_column(column)
    for each in results:
        place = "within a generation" if each["within"] else "between generations"
        equal = [
            "equal" if each[name] == each["whole"] else "different" for name in ("again", "resumed")
        ]
        cut = (str(each["checkpoint"]), place, str(each["kill"]))
        shown.add_row(each["name"], *cut, each["side"], *equal)
    return shown


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peer-python", required=True, help="interpreter of TRL's environment")
    parser.add_argument("--size", choices=SIZES, default="156k")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
