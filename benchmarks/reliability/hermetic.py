"""What it costs a stage to be held to its key: pairs of attempts, held and not, in turn.

    python -m benchmarks.reliability.hermetic [--pairs 5] [--seconds 10]

A step of the stage that works is fifty products of small matrices and one open of a file; the one
that opens does nothing else.
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

from posttrain.pipeline.execution.assignment import Assignment
from posttrain.pipeline.execution.supervise import Limits, StageProcesses
from posttrain.pipeline.hermetic.view import StageView
from posttrain.stage.config import StageConfig
from posttrain.stage.spec import ArtifactKind

BODY = """
import time
import torch

def run(config, inputs, outputs, context):
    ended = time.process_time() + {seconds}
    steps, weights = 0, torch.ones(64, 64)
    while time.process_time() < ended:
        for _ in range({products}):
            weights = (weights @ weights).tanh()
        open(__file__).close()
        steps += 1
    outputs["report"].write_text("{{}}")
    return {{"steps": steps}}
"""


# Name, seconds of the stage as a share of what was asked for, products of matrices in a step.
STAGES = (("empty", 0.0, 0), ("working", 1.0, 50), ("opening", 0.2, 0))


def measured(processes: StageProcesses, folder: Path, module: str, *, held: bool) -> list[float]:
    """Seconds of one attempt, and the steps that it made."""
    staging, scratch = folder / "staging", folder / "scratch"
    for each in (staging, scratch):
        each.mkdir(exist_ok=True)
    view = StageView(
        stage="toy",
        root=folder,
        folder=folder,
        code=(folder / f"{module}.py",),
        writes=(staging, scratch),
        temporary=staging / ".tmp",
    )
    assignment = Assignment(
        stage="toy",
        entry=f"{module}:run",
        config=StageConfig(),
        inputs={},
        outputs={"report": staging / "report.json"},
        types={"report": ArtifactKind.REPORT},
        scratch=scratch,
        log=folder / "toy.log",
        seed=7,
        threads=1,
        device="cpu",
        view=view if held else None,
    )
    begun = time.perf_counter()
    outcome = processes.attempt(assignment, Limits(600, 600), lambda _event: None)
    if not outcome.ok:
        raise SystemExit(outcome.error)
    return [time.perf_counter() - begun, outcome.metrics["steps"]]


def main() -> None:
    """Print medians of a stage that does nothing, one that works, and one that opens a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10.0, help="that the longer stage works")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place).resolve()
        sys.path.insert(0, place)
        processes = StageProcesses(threads=1, packages={"torch"})
        for name, share, products in STAGES:
            seconds = options.seconds * share
            body = BODY.format(seconds=seconds, products=products)
            (folder / f"{name}_stage.py").write_text(body)
            measured(processes, folder, f"{name}_stage", held=False)
            pairs = [
                [measured(processes, folder, f"{name}_stage", held=held) for held in (False, True)]
                for _ in range(options.pairs)
            ]
            cost = statistics.median(held[0] - plain[0] for plain, held in pairs) * 1000
            print(f"{name}: {cost:+.1f} ms where it is held")
            if seconds:
                steps = [(plain[1], held[1]) for plain, held in pairs]
                free, kept = (
                    1e6 * seconds / statistics.median(side) for side in zip(*steps, strict=True)
                )
                more = statistics.median(held / plain for plain, held in steps) - 1
                print(f"{name}: a step takes {free:.2f} us, held {kept:.2f}: {more:+.1%} steps")
        processes.close()


if __name__ == "__main__":
    main()
