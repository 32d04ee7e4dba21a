"""Bytes a parameter that training takes, ours and TRL's.

    python -m benchmarks.learner.bytes [--only NAME ...] [--layers N] [--json PATH]

A random Qwen2 of 50 million parameters, stored in bfloat16, makes three updates on a batch so short
that activations count little. Every row of `CASES` is a child process of its own, one thread. What
is reported is the kernel's high-water mark of the whole process, less what it held after the same
updates of one layer of that model (imports, kernels), divided by the parameters: first while the
model is loaded, then, the mark set back, until the third update is over (the second is the first to
begin with moments). Memory of 64 KiB and more goes back to the system when it is freed, so that the
mark is of what is held. What is no share of a larger model, such as a piece of a weight while it is
stepped, drops out of the difference between two numbers of layers.
"""

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.learner.memory import reset_peak, status
from benchmarks.learner.settings import Size, save
from benchmarks.sampling.machine import described

ONE_LAYER = Size(1024, 512, 2048, 1, 8, 2, new_tokens=8, parameters=4_327_680)
PER_LAYER, LAYERS = 3_802_880, 13
SPECIAL_WORDS = ("<pad>", "<end>", "<unk>")
STEPS, ROWS, TOKENS = 3, 2, 6
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


BF16 = {"learner": {"weights": "bf16"}}
FREE = {"in_backward": True, "max_grad_norm": None}


def narrow(**optimization: Any) -> Mapping[str, Any]:
    """Of a recipe: bfloat16 weights, and AdamW."""
    return {**BF16, "optimization": {"optimizer": "adamw", **optimization}}


ADAMW = {"optimization": {"optimizer": "adamw"}}
TRL_8BIT = {"optim": "adamw_8bit"}
CASES = {
    "sft, float32": Case("sft", ADAMW, "4 weights + 4 gradients + 8 moments"),
    "sft, bf16, 8 bits": Case("sft", narrow(states="8bit"), "2 + 2 + 2"),
    "sft, bf16, 8 bits, in backward": Case("sft", narrow(states="8bit", **FREE), "2 + 2"),
    "sft, bf16, Kahan, float32 moments": Case("sft", narrow(rounding="kahan"), "2 + 2 + 2 + 8"),
    "sft, TRL, adamw_8bit, bf16": Case("trl_sft", TRL_8BIT, "2 + 2 + 2"),
    "rl, float32": Case("rl", ADAMW, "4 weights + 4 gradients + 8 moments + 4 reference"),
    "rl, bf16, 8 bits": Case("rl", narrow(states="8bit"), "2 + 2 + 2 + 2"),
    "rl, bf16, 8 bits, in backward": Case("rl", narrow(states="8bit", **FREE), "2 + 2 + 2"),
    "rl, TRL, adamw_8bit, bf16": Case("trl_grpo", TRL_8BIT, "2 + 2 + 2 + 2"),
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
    parser.add_argument("--json", type=Path, default=Path(__file__).with_name("bytes.json"))
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


def words() -> list[str]:
    """The vocabulary."""
    return [*SPECIAL_WORDS, *(f"w{i}" for i in range(ONE_LAYER.vocabulary - len(SPECIAL_WORDS)))]


def narrowed(path: Path) -> None:
    """Store the model in bfloat16, as released ones are."""
    import torch
    from transformers import Qwen2ForCausalLM

    Qwen2ForCausalLM.from_pretrained(path, dtype=torch.bfloat16).save_pretrained(path)


@dataclass
class Meter:
    """Reads the high-water mark of this process, above what stood before."""

    base: int
    loading: int = 0
    training: int = 0

    def loaded(self) -> None:
        """The model is there: what comes now is training."""
        self.loading = status("VmHWM") - self.base
        reset_peak()

    def trained(self) -> None:
        """The last update is over."""
        self.training = status("VmHWM") - self.base


def measured(case: Case, folder: Path, size: Size) -> dict[str, Any]:
    """Make the updates of a case; returns bytes a parameter."""
    import torch

    torch.set_num_threads(1)
    # What is imported and set up on the way is no part of a model.
    RUNS[case.run](case, folder / "small")(Meter(0))
    run = RUNS[case.run](case, folder / "large")
    gc.collect()
    meter = Meter(reset_peak())
    run(meter)
    return {
        "loading": round(meter.loading / size.parameters, 2),
        "training": round(meter.training / size.parameters, 2),
    }


Run = Callable[[Meter], None]


def sft(case: Case, folder: Path) -> Run:
    """Ours, by the loop of the SFT stage."""
    import bitsandbytes  # noqa: F401 - imported before anything is measured

    from posttrain.learning.training.curve import Curve
    from posttrain.learning.training.next_token import Corpus, next_token_objective
    from posttrain.learning.training.prepare import load_to_train, prepare_for_training
    from posttrain.learning.training.supervised import train
    from posttrain.stage.context import StageContext
    from tasks.sft.config import SftConfig

    config = SftConfig.parse(
        {
            "steps": STEPS,
            "batch_tokens": ROWS * TOKENS,
            "checkpoint_every": 0,
            "most_left_out": 1.0,
            **case.said,
        },
        where="sft",
    )
    context = StageContext.quiet(folder / "scratch")

    def run(meter: Meter) -> None:
        policy = load_to_train(folder / "policy", config.learner, device="cpu")
        meter.loaded()
        texts = [" ".join(words()[9 * i + 3 : 9 * i + 3 + TOKENS - 2]) for i in range(ROWS)]
        objective, _, _ = next_token_objective(
            policy, Corpus(["w0"] * ROWS, texts), config=config, context=context, where="sft"
        )
        trainable = prepare_for_training(policy.model, config.learner, seed=0)
        train(
            trainable, objective, config=config, context=context, curve=Curve(context), prefix="sft"
        )
        meter.trained()

    return run


def rl(case: Case, folder: Path) -> Run:
    """Ours, by the learner of the RL stage with a KL to the reference; nothing is sampled."""
    import bitsandbytes  # noqa: F401 - imported before anything is measured

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
            **case.said,
        },
        where="rl",
    )
    context = StageContext.quiet(folder / "scratch")
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

    def run(meter: Meter) -> None:
        policy = load_to_train(folder / "policy", config.learner, device="cpu")
        meter.loaded()
        learner = build_learner(policy, config, context, inputs={})
        for step in range(STEPS):
            learner.update(samples, step=step, index=0, seed=0)
        meter.trained()

    return run


def trl_arguments(case: Case, folder: Path) -> dict[str, Any]:
    """TRL's, for one device, with what its guide to memory asks for."""
    return {
        "output_dir": str(folder / "peer"),
        "max_steps": STEPS,
        "use_cpu": True,
        "bf16": True,
        "gradient_checkpointing": True,
        "report_to": "none",
        "save_strategy": "no",
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
        "model_init_kwargs": {"dtype": "bfloat16"},
        **case.said,
    }


def trl_sft(case: Case, folder: Path) -> Run:
    """TRL's SFTTrainer."""
    import bitsandbytes  # noqa: F401 - imported before anything is measured
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    from benchmarks.learner.peer import tokenizer_of

    arguments = SFTConfig(per_device_train_batch_size=ROWS, **trl_arguments(case, folder))
    text = " ".join(words()[3 : 3 + TOKENS - 1])

    def run(meter: Meter) -> None:
        trainer = SFTTrainer(
            str(folder / "policy"),
            args=arguments,
            train_dataset=Dataset.from_list([{"text": text}] * (ROWS * STEPS)),
            processing_class=tokenizer_of(folder / "policy"),
        )
        meter.loaded()
        trainer.train()
        meter.trained()

    return run


def trl_grpo(case: Case, folder: Path) -> Run:
    """TRL's GRPOTrainer with a KL to the reference; it samples its answers, too."""
    import bitsandbytes  # noqa: F401 - imported before anything is measured
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    from benchmarks.learner.peer import tokenizer_of

    arguments = GRPOConfig(
        per_device_train_batch_size=ROWS,
        num_generations=ROWS,
        max_completion_length=TOKENS - 2,
        beta=0.05,
        **trl_arguments(case, folder),
    )

    def judged(completions: list[str], **_: Any) -> list[float]:
        return [float(number) for number in range(len(completions))]

    def run(meter: Meter) -> None:
        trainer = GRPOTrainer(
            str(folder / "policy"),
            reward_funcs=judged,
            args=arguments,
            train_dataset=Dataset.from_list([{"prompt": "w1 w2"}] * (ROWS * STEPS)),
            processing_class=tokenizer_of(folder / "policy"),
        )
        meter.loaded()
        trainer.train()
        meter.trained()

    return run


RUNS = {"sft": sft, "rl": rl, "trl_sft": trl_sft, "trl_grpo": trl_grpo}


def table(report: Mapping[str, Any]) -> str:
    """The cases one below the other."""
    lines = ["| case | counted | loading | training |", "|---|---|---:|---:|"]
    for case in report["cases"]:
        told = case.get("failed") or f"{case['loading']:.2f} | {case['training']:.2f}"
        lines.append(f"| {case['case']} | {case['counted']} | {told} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
