"""Bytes that each of two processes takes to begin with a model that they will share.

    python -m benchmarks.learner.loading [--json PATH]

A random Qwen2 of 50 million parameters in float32 or bfloat16, in files of 20 MB, is loaded and put
in shards, as a stage does before its first step: the digest of its weights is taken on the way.
*whole* is how a start was before: every process loads the model, and keeps its rows. *rows* is what
stages do: weights stay in the files until each process reads its own. It is the kernel's high-water
mark (`VmHWM`) of a process above what it held after the same with a model of 12 thousand
parameters; pages of files that are mapped at the time are in it.
"""

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.learner.bytes import LAYERS, RETURNED, deep
from benchmarks.learner.bytes_runs import words
from benchmarks.learner.memory import reset_peak, status
from benchmarks.learner.settings import Size, save
from benchmarks.sampling.machine import described

SIZE = deep(LAYERS)
SMALL = Size(64, 32, 64, 1, 2, 2, new_tokens=8, parameters=12_480)
PROCESSES = 2
CASES: dict[str, dict[str, Any]] = {
    "all weights": {},
    "all weights, average": {"ema_decay": 0.9},
    "adapters, float32 base": {"lora": {"rank": 8, "alpha": 16}},
    "adapters, bfloat16 base": {"lora": {"rank": 8, "alpha": 16}, "weights": "bf16"},
}


def main() -> None:
    """Measure every case both ways, or be one of the processes of one."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", type=Path, default=Path(__file__).with_suffix(".json"))
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child:
        case, way, rank, folder = chosen.child
        print(json.dumps(measured(CASES[case], way, int(rank), Path(folder))))
        return
    with tempfile.TemporaryDirectory() as folder:
        for name, size in {"large": SIZE, "small": SMALL}.items():
            made = Path(folder) / name
            save(made, size, words()[: size.vocabulary], never_ends=False)
            in_files(made)
        cases = [
            {"case": case, **{way: together(case, way, folder) for way in ("whole", "rows")}}
            for case in CASES
        ]
    report = {"parameters": SIZE.parameters, "machine": described(1), "cases": cases}
    chosen.json.write_text(json.dumps(report, indent=1, sort_keys=True) + "\n")
    print("| case | whole | rows |\n|---|---:|---:|")
    for each in cases:
        cells = [f"{max(each[way]) / 1e6:.0f}" for way in ("whole", "rows")]
        print(f"| {each['case']} | {' | '.join(cells)} |")


def in_files(path: Path) -> None:
    """Store the model in bfloat16, as released ones are, and in several files."""
    import torch
    from transformers import Qwen2ForCausalLM

    model = Qwen2ForCausalLM.from_pretrained(path, dtype=torch.bfloat16)
    (path / "model.safetensors").unlink()
    model.save_pretrained(path, max_shard_size="20MB")


def together(case: str, way: str, folder: str) -> list[int]:
    """Bytes of each process that loads together with the others."""
    module = "benchmarks.learner.loading"
    environment = {**os.environ, **RETURNED, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    store = Path(folder) / "store"
    store.unlink(missing_ok=True)
    started = [
        subprocess.Popen(
            [sys.executable, "-m", module, "--child", case, way, str(rank), folder],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for rank in range(PROCESSES)
    ]
    found = [each.communicate()[0] for each in started]
    if any(each.returncode for each in started):
        raise SystemExit(f"{case}, {way}: a process failed")
    return [int(json.loads(text.strip().splitlines()[-1])) for text in found]


def measured(said: dict[str, Any], way: str, rank: int, folder: Path) -> int:
    """Bytes of this process at its highest, above those with the small model."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), PROCESSES)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=PROCESSES)
    started(folder / "small", said, way)
    gc.collect()
    base = reset_peak()
    kept = started(folder / "large", said, way)
    peak = status("VmHWM") - base
    dist.barrier()
    del kept
    dist.destroy_process_group()
    return peak


def started(path: Path, said: dict[str, Any], way: str) -> Any:
    """Load a model and put it in shards, as the trainer of several processes does."""
    from posttrain.learning.models.distributed.group import current_process_group
    from posttrain.learning.models.distributed.shard import shard
    from posttrain.learning.training.config import LearnerConfig
    from posttrain.learning.training.prepare import load_to_train, prepare_for_training
    from posttrain.learning.training.sharded import twin

    config = LearnerConfig(**said)
    processes = PROCESSES if way == "rows" else 1
    policy = load_to_train(path, config, device="cpu", processes=processes)
    trainable = prepare_for_training(policy.model, config, seed=0)
    sharded = shard(trainable.model, current_process_group("cpu"))
    return sharded, twin(trainable, sharded.model)


if __name__ == "__main__":
    main()
