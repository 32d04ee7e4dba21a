"""Bytes a parameter that training takes, of all weights and of adapters, ours and TRL's.

    python -m benchmarks.learner.bytes [--only NAME ...] [--layers N] [--json PATH]

A random Qwen2 of 50 million parameters, stored in bfloat16, makes three updates (the second is the
first to begin with moments) on a batch so short that activations count little. Embedding and head,
which are tied, are 3% of it. Every row of `CASES` is a child process of its own, one thread, and
four numbers are reported. `standing` and `training` are the kernel's high-water marks of the whole
process until what trains stands, and then, the mark set back, until the last update is over; less
what the process held after the same updates of one layer of that model (imports, kernels).
`tensors` are the bytes of all storages that anything still holds after the last update, less those
from before; not told of our SFT, whose loop has let go of its moments by then. `trained` counts
parameters. Memory of 64 KiB and more goes back to the system when it is freed, so that the marks
are of what is held; pages of the file that are mapped while it is read are in the first. What is no
share of a larger model, such as a piece of a weight while it is stepped, drops out of the
difference between two numbers of layers.
"""

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.learner.bytes_runs import RANK, RUNS, TOKENS, VOCABULARY, words
from benchmarks.learner.memory import reset_peak, status
from benchmarks.learner.settings import Size, save
from benchmarks.sampling.machine import described

ONE_LAYER = Size(VOCABULARY, 640, 1280, 1, 10, 10, new_tokens=TOKENS + 2, parameters=5_410_560)
PER_LAYER, LAYERS = 4_099_200, 12
RETURNED = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}


@dataclass(frozen=True)
class Case:
    """One row of the table."""

    run: str
    """Which of `RUNS` makes the updates."""
    said: Mapping[str, Any] = field(default_factory=dict)
    """Of the recipe, or of TRL's arguments."""
    counted: str = ""
    """What should stand at once, in bytes a parameter, as arithmetic says."""


def adamw(learner: Mapping[str, Any], **optimization: Any) -> Mapping[str, Any]:
    """Of a recipe: how a model is held, and AdamW."""
    return {"learner": learner, "optimization": {"optimizer": "adamw", **optimization}}


def adapters(*, dora: bool = False, **learner: Any) -> Mapping[str, Any]:
    """Of a recipe: adapters, and AdamW."""
    return adamw({"lora": {"rank": RANK, "alpha": 2 * RANK, "dora": dora}, **learner})


BF16 = {"weights": "bf16"}
FREE = {"states": "8bit", "in_backward": True, "max_grad_norm": None}
TRL_8BIT = {"optim": "adamw_8bit"}
CASES = {
    "sft, float32": Case("sft", adamw({}), "4 weights + 4 gradients + 8 moments"),
    "sft, bf16, 8 bits": Case("sft", adamw(BF16, states="8bit"), "2 + 2 + 2"),
    "sft, bf16, 8 bits, in backward": Case("sft", adamw(BF16, **FREE), "2 + 2"),
    "sft, bf16, Kahan, float32 moments": Case(
        "sft", adamw(BF16, rounding="kahan"), "2 + 2 + 2 + 8"
    ),
    "sft, TRL, adamw_8bit, bf16": Case("trl_sft", TRL_8BIT, "2 + 2 + 2"),
    "rl, float32": Case("rl", adamw({}), "4 weights + 4 gradients + 8 moments + 4 reference"),
    "rl, bf16, 8 bits": Case("rl", adamw(BF16, states="8bit"), "2 + 2 + 2 + 2"),
    "rl, bf16, 8 bits, in backward": Case("rl", adamw(BF16, **FREE), "2 + 2 + 2"),
    "rl, TRL, adamw_8bit, bf16": Case("trl_grpo", TRL_8BIT, "2 + 2 + 2 + 2"),
    "rl, LoRA over float32": Case("rl", adapters(), "4 + 16 of 2%"),
    "rl, LoRA over bf16": Case("rl", adapters(weights="bf16"), "2 + 16 of 2%"),
    "rl, LoRA over 4 bits": Case("rl", adapters(weights="nf4"), "0.5 + 16 of 2%"),
    "rl, DoRA over 4 bits": Case("rl", adapters(weights="nf4", dora=True), "0.5 + 16 of 2%"),
    "rl, TRL, LoRA over bf16": Case("trl_lora", {}, "2 + 16 of 2%"),
    "rl, TRL, LoRA over 4 bits": Case("trl_qlora", {}, "0.5 + 8 of 2%"),
}


def deep(layers: int) -> Size:
    """As many layers in place of one."""
    more = (layers - 1) * PER_LAYER
    return replace(ONE_LAYER, layers=layers, parameters=ONE_LAYER.parameters + more)


def main() -> None:
    """Measure every case, or one of them where this is the child."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="*", default=list(CASES), choices=list(CASES))
    parser.add_argument("--layers", type=int, default=LAYERS)
    parser.add_argument("--json", type=Path, default=Path(__file__).with_suffix(".json"))
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    size = deep(chosen.layers)
    if chosen.child:
        name, folder = chosen.child
        print(json.dumps(measured(CASES[name], Path(folder), size)))
        return
    with tempfile.TemporaryDirectory() as folder:
        for name, saved in {"large": size, "small": ONE_LAYER}.items():
            made = Path(folder) / name / "policy"
            save(made, saved, words(), never_ends=False)
            narrowed(made)
        found = {name: in_child(name, folder, chosen.layers) for name in chosen.only}
    cases = [{"case": name, "counted": CASES[name].counted, **found[name]} for name in found]
    report = {"parameters": size.parameters, "machine": described(1), "cases": cases}
    chosen.json.write_text(json.dumps(report, indent=1, sort_keys=True) + "\n")
    print(table(report))


def in_child(name: str, folder: str, layers: int) -> dict[str, Any]:
    """Measure one case in a process of its own; says what went wrong, if anything did."""
    command = [sys.executable, "-m", "benchmarks.learner.bytes", "--child", name, folder]
    command += ["--layers", str(layers)]
    environment = {**os.environ, **RETURNED, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        return {"failed": done.stderr.strip().splitlines()[-1]}
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def narrowed(path: Path) -> None:
    """Store the model in bfloat16, as released ones are."""
    import torch
    from transformers import Qwen2ForCausalLM

    Qwen2ForCausalLM.from_pretrained(path, dtype=torch.bfloat16).save_pretrained(path)


def measured(case: Case, folder: Path, size: Size) -> dict[str, Any]:
    """Make the updates of a case; returns bytes a parameter."""
    import torch

    torch.set_num_threads(1)
    # What is imported and set up on the way is no part of a model.
    RUNS[case.run](folder / "small/policy", case.said).updates()
    stood, base = held(), reset_peak()
    built = RUNS[case.run](folder / "large/policy", case.said)
    gc.collect()
    standing = status("VmHWM") - base
    reset_peak()
    built.updates()
    training = status("VmHWM") - base
    tensors = held() - stood
    return {
        "standing": round(standing / size.parameters, 2),
        "training": round(training / size.parameters, 2),
        "tensors": round(tensors / size.parameters, 2) if built.keeps else None,
        "trained": sum(p.numel() for p in built.model.parameters() if p.requires_grad),
    }


def held() -> int:
    """Bytes of every storage that some tensor of this process is a view of."""
    import torch

    gc.collect()
    tensors = [each for each in gc.get_objects() if isinstance(each, torch.Tensor)]
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
    return sum(storages.values())


def table(report: Mapping[str, Any]) -> str:
    """The cases one below the other."""
    lines = [
        "| case | trained | counted | tensors | standing | training |",
        "|---|---:|---|---:|---:|---:|",
    ]
    for case in report["cases"]:
        if "failed" in case:
            lines.append(f"| {case['case']} | {case['failed']} |")
            continue
        tensors = "" if case["tensors"] is None else f"{case['tensors']:.2f}"
        lines.append(
            f"| {case['case']} | {case['trained']:,} | {case['counted']} | {tensors}"
            f" | {case['standing']:.2f} | {case['training']:.2f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
