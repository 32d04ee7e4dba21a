"""What a start takes: bytes of a reward model, and passes over the files for digests.

    python -m benchmarks.learner.beginnings --version after [--json PATH]

A random Qwen2 of 50 million parameters, stored in bfloat16. Of a reward model it is the kernel's
high-water mark (`VmHWM`) while it loads, above what the process held after the same with a tiny
model, a parameter. Of one of two processes that will share a model it is how often the files are
read through, and the seconds, for all that a stage of RL asks of the weights' digest before its
first step. `--version` names the code that was measured: versions stand side by side in the file.
"""

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.learner.bytes import RETURNED
from benchmarks.learner.bytes_runs import words
from benchmarks.learner.loading import SIZE, SMALL, in_files
from benchmarks.learner.memory import reset_peak, status
from benchmarks.learner.settings import save
from benchmarks.sampling.machine import described

LEARNERS: dict[str, dict[str, Any]] = {
    "all weights": {},
    "all weights, bfloat16": {"weights": "bf16"},
    "adapters, float32 base": {"lora": {"rank": 8}},
    "adapters, bfloat16 base": {"lora": {"rank": 8}, "weights": "bf16"},
}
REWARDS = ("likelihood", "head")


def main() -> None:
    """Measure every case in a process of its own, or be one of them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--version", default="after")
    parser.add_argument("--json", type=Path, default=Path(__file__).with_suffix(".json"))
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child:
        case, folder = chosen.child
        measured = rewarding if case in REWARDS else digesting
        print(json.dumps(measured(case, Path(folder))))
        return
    with tempfile.TemporaryDirectory() as folder:
        for name, size in {"large": SIZE, "small": SMALL}.items():
            save(Path(folder) / name, size, words()[: size.vocabulary], never_ends=False)
            in_files(Path(folder) / name)
        found = {case: apart(case, folder) for case in (*REWARDS, *LEARNERS)}
    report = json.loads(chosen.json.read_text()) if chosen.json.is_file() else {}
    report |= {"parameters": SIZE.parameters, "machine": described(1), chosen.version: found}
    chosen.json.write_text(json.dumps(report, indent=1, sort_keys=True) + "\n")
    for case, figures in found.items():
        print(
            f"| {case} | {' | '.join(f'{name} {value:.2f}' for name, value in figures.items())} |"
        )


def apart(case: str, folder: str) -> dict[str, float]:
    """Measure a case in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.learner.beginnings", "--child", case, folder]
    environment = {**os.environ, **RETURNED, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=True)
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def rewarding(parameterization: Any, folder: Path) -> dict[str, float]:
    """Bytes a parameter at the highest while a reward model loads."""
    from posttrain.learning.models.reward_head import start_reward_model

    start_reward_model(folder / "small", parameterization=parameterization)
    gc.collect()
    base = reset_peak()
    kept = start_reward_model(folder / "large", parameterization=parameterization)
    peak = status("VmHWM") - base
    del kept
    return {"bytes a parameter": peak / SIZE.parameters}


def digesting(case: str, folder: Path) -> dict[str, float]:
    """Passes over the files, and seconds, from loading to the identity of the run."""
    from posttrain.learning.models.load import weights_digest
    from posttrain.learning.models.unread import StoredWeight
    from posttrain.learning.training.config import LearnerConfig
    from posttrain.learning.training.prepare import load_to_train, prepare_for_training

    rows, read = StoredWeight.rows, [0]

    def counted(self: StoredWeight, begin: int, end: int) -> Any:
        found = rows(self, begin, end)
        read[0] += found.numel()
        return found

    StoredWeight.rows = counted  # type: ignore[method-assign]
    config = LearnerConfig(**LEARNERS[case])
    policy = load_to_train(folder / "large", config, device="cpu", processes=2)
    whole = sum(each.numel() for each in policy.model.state_dict().values())
    began = time.perf_counter()
    weights_digest(policy.model)
    trainable = prepare_for_training(policy.model, config, seed=0)
    weights_digest(trainable.model)
    return {"passes": read[0] / whole, "seconds": time.perf_counter() - began}


if __name__ == "__main__":
    main()
