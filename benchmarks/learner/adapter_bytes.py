"""Bytes a parameter that RL with a KL takes under adapters, ours and TRL's.

    python -m benchmarks.learner.adapter_bytes [--only NAME ...] [--json PATH]

A random Qwen2 of 50 million parameters, 12 layers over a vocabulary of 2048 so that embedding and
head are 3% of it, stored in bfloat16, makes three updates on rows so short that activations count
little. Every row of `CASES` is a child process of its own, one thread. Three numbers are reported.
`tensors` are the bytes of all storages that anything in the process still holds after the last
update, less what was held before the model was loaded. `building` and `training` are the kernel's
high-water marks of the process until the learner stands, and then, the mark set back, until the
last update is over; less what it held after the same updates of a model of 12 thousand parameters
(imports, kernels). Memory of 64 KiB and more goes back to the system when it is freed, so that the
marks are of what is held; pages of the file that are mapped while it is read are in the first.
"""

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.learner.memory import reset_peak, status
from benchmarks.learner.settings import Size, save
from benchmarks.sampling.machine import described

SIZE = Size(2048, 640, 1280, 12, 10, 10, new_tokens=8, parameters=50_501_760)
SMALL = Size(64, 32, 64, 1, 2, 2, new_tokens=8, parameters=12_480)
SPECIAL_WORDS = ("<pad>", "<end>", "<unk>")
STEPS, ROWS, TOKENS = 3, 2, 12
RANK = 8
RETURNED = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}


@dataclass(frozen=True)
class Case:
    """One row of the table."""

    run: str
    """Which of `RUNS` makes the updates."""
    said: Mapping[str, Any] = field(default_factory=dict)
    """Of `learner`, or of TRL's."""


def adapters(**said: Any) -> Mapping[str, Any]:
    """A learner with adapters."""
    return {"lora": {"rank": RANK, "alpha": 2 * RANK, **said.pop("lora", {})}, **said}


CASES = {
    "all weights": Case("ours"),
    "LoRA": Case("ours", adapters()),
    "LoRA, bf16": Case("ours", adapters(weights="bf16")),
    "LoRA, 4 bits": Case("ours", adapters(weights="nf4")),
    "DoRA, 4 bits": Case("ours", adapters(weights="nf4", lora={"dora": True})),
    "TRL, LoRA, bf16": Case("peer"),
    "TRL, LoRA, 4 bits": Case("peer", {"four_bits": True}),
}


def main() -> None:
    """Measure every case, or one of them where this is the child."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="*", default=list(CASES), choices=list(CASES))
    parser.add_argument("--json", type=Path, default=Path(__file__).with_suffix(".json"))
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child:
        name, folder = chosen.child
        print(json.dumps(measured(CASES[name], Path(folder))))
        return
    with tempfile.TemporaryDirectory() as folder:
        for name, size in {"large": SIZE, "small": SMALL}.items():
            made = Path(folder) / name / "policy"
            save(made, size, words(size), never_ends=False)
            narrowed(made)
        cases = [{"case": name, **in_child(name, folder)} for name in chosen.only]
    report = {"parameters": SIZE.parameters, "machine": described(1), "cases": cases}
    chosen.json.write_text(json.dumps(report, indent=1, sort_keys=True) + "\n")
    print(table(report))


def words(size: Size) -> list[str]:
    """The vocabulary."""
    return [*SPECIAL_WORDS, *(f"w{i}" for i in range(size.vocabulary - len(SPECIAL_WORDS)))]


def narrowed(path: Path) -> None:
    """Store the model in bfloat16, as released ones are."""
    import torch
    from transformers import Qwen2ForCausalLM

    Qwen2ForCausalLM.from_pretrained(path, dtype=torch.bfloat16).save_pretrained(path)


def in_child(name: str, folder: str) -> dict[str, Any]:
    """Measure one case in a process of its own; says what went wrong, if anything did."""
    command = [sys.executable, "-m", "benchmarks.learner.adapter_bytes", "--child", name, folder]
    environment = {**os.environ, **RETURNED, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        return {"failed": done.stderr.strip().splitlines()[-1]}
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def measured(case: Case, folder: Path) -> dict[str, Any]:
    """Make the updates of a case; returns bytes a parameter."""
    import torch

    torch.set_num_threads(1)
    # What is imported and set up on the way is no part of a model.
    RUNS[case.run](case, folder / "small")[1]()
    stood, base = held(), reset_peak()
    model, updates = RUNS[case.run](case, folder / "large")
    gc.collect()
    building = status("VmHWM") - base
    reset_peak()
    updates()
    training = status("VmHWM") - base
    return {
        "tensors": round((held() - stood) / SIZE.parameters, 3),
        "building": round(building / SIZE.parameters, 2),
        "training": round(training / SIZE.parameters, 2),
        "trained": sum(p.numel() for p in model.parameters() if p.requires_grad),
    }


def held() -> int:
    """Bytes of every storage that some tensor of this process is a view of."""
    import torch

    gc.collect()
    tensors = [each for each in gc.get_objects() if isinstance(each, torch.Tensor)]
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
    return sum(storages.values())


Built = tuple[Any, Callable[[], Any]]
"""A model with its adapters, and what makes the updates."""


def ours(case: Case, folder: Path) -> Built:
    """Build the learner of the RL stage; its updates are of stored rollouts, nothing is sampled."""
    from posttrain.learning.rl.batch import TrainSample
    from posttrain.learning.rl.build import build_learner
    from posttrain.learning.training.prepare import load_to_train
    from posttrain.stage.context import StageContext
    from tasks.rl.config import RlStageConfig

    config = RlStageConfig.parse(
        {
            "steps": STEPS,
            "max_tokens": TOKENS,
            "algorithm": {"regularizers": {"kl": {"coefficient": 0.05}}},
            "optimization": {"optimizer": "adamw"},
            "learner": case.said,
        },
        where="rl",
    )
    num_drawn = TOKENS - 2
    samples = [
        TrainSample(
            token_ids=tuple(range(3 + 20 * row, 3 + 20 * row + TOKENS)),
            drawn=(False, False, *[True] * num_drawn),
            logprobs=(-7.0,) * num_drawn,
            policy_version=0,
            advantages=(1.0 - 2.0 * row,),
        )
        for row in range(ROWS)
    ]
    policy = load_to_train(folder / "policy", config.learner, device="cpu")
    learner = build_learner(policy, config, StageContext.quiet(folder / "scratch"), inputs={})

    def updates() -> None:
        for step in range(STEPS):
            learner.update(samples, step=step, index=0, seed=0)

    return policy.model, updates


def peer(case: Case, folder: Path) -> Built:
    """TRL's GRPOTrainer with peft and a KL to the reference; it samples its answers, too."""
    import torch
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import BitsAndBytesConfig
    from trl import GRPOConfig, GRPOTrainer

    from benchmarks.learner.peer import tokenizer_of

    options: dict[str, Any] = {"dtype": "bfloat16"}
    if case.said.get("four_bits"):
        options["quantization_config"] = BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=torch.bfloat16,
        )
    arguments = GRPOConfig(
        output_dir=str(folder / "peer"),
        max_steps=STEPS,
        use_cpu=True,
        bf16=True,
        gradient_checkpointing=False,
        per_device_train_batch_size=ROWS,
        num_generations=ROWS,
        max_completion_length=TOKENS - 2,
        beta=0.05,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
        dataloader_pin_memory=False,
        model_init_kwargs=options,
    )

    def judged(completions: list[str], **_: Any) -> list[float]:
        return [float(number) for number in range(len(completions))]

    trainer = GRPOTrainer(
        str(folder / "policy"),
        reward_funcs=judged,
        args=arguments,
        train_dataset=Dataset.from_list([{"prompt": "w1 w2"}] * (ROWS * STEPS)),
        processing_class=tokenizer_of(folder / "policy"),
        peft_config=LoraConfig(r=RANK, lora_alpha=2 * RANK, target_modules="all-linear"),
    )
    return trainer.model, trainer.train


RUNS: Mapping[str, Callable[[Case, Path], Built]] = {"ours": ours, "peer": peer}


def table(report: Mapping[str, Any]) -> str:
    """The cases one below the other."""
    lines = ["| case | trained | tensors | building | training |", "|---|---:|---:|---:|---:|"]
    for case in report["cases"]:
        told = case.get("failed") or (
            f"{case['trained']:,} | {case['tensors']:.2f} | {case['building']:.2f}"
            f" | {case['training']:.2f}"
        )
        lines.append(f"| {case['case']} | {told} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
