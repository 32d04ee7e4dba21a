"""TRL's side: run by the interpreter of an environment that has it, as a child of `compare`.

PEER/bin/python -m benchmarks.learner.peer FOLDER WORKLOAD WARM_UP BURST [DEVICE [DTYPE]]
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import (
    AutoModelForSequenceClassification,
    PreTrainedTokenizerFast,
    TrainerCallback,
)

from benchmarks.learner.pace import Pace
from benchmarks.learner.settings import (
    BETA2,
    LEARNING_RATE,
    RL_LEARNING_RATE,
    half_reward,
)

MANY = 20_000
"""Steps that are planned; the parent ends the process long before."""


def main() -> None:
    """Train until the parent has heard enough."""
    folder, workload, warm_up, burst, *rest = sys.argv[1:]
    device, dtype = [*rest, *("cpu", "float32")[len(rest) :]]
    torch.set_num_threads(1)
    pace = Pace(warm_up=int(warm_up), burst=int(burst))
    rows = json.loads((Path(folder) / "rows.json").read_text())
    common = {
        "output_dir": str(Path(folder) / "peer"),
        "max_steps": MANY,
        "use_cpu": device == "cpu",
        # TRL computes in bfloat16 and recomputes activations unless told otherwise.
        "bf16": dtype == "bfloat16",
        "gradient_checkpointing": False,
        "learning_rate": LEARNING_RATE,
        "adam_beta2": BETA2,
        "weight_decay": 0.0,
        "lr_scheduler_type": "constant",
        "warmup_steps": 0,
        "logging_first_step": True,
        # Logged after the step is told: the last of the warm-up comes too late.
        "logging_steps": min(10, int(warm_up) - 1),
        "report_to": "none",
        "save_strategy": "no",
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
        "seed": 0,
    }
    trainer = TRAINERS[workload](Path(folder), rows, common, pace)
    trainer.add_callback(Paced(trainer, pace))
    trainer.train()


class Paced(TrainerCallback):
    """Reports to the parent at the end of every step."""

    def __init__(self, trainer: Any, pace: Pace) -> None:
        self.trainer, self.pace = trainer, pace

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.pace.facts["history"] = state.log_history
        self.pace.step()


def tokenizer_of(path: Path) -> Any:
    # AutoTokenizer would put Qwen2's own tokenizer in place of this one, and every text be empty.
    return PreTrainedTokenizerFast.from_pretrained(path)


def repeated(folder: Path, rows: list[dict[str, str]]) -> Dataset:
    """The same batch at every step, as the other side has it."""
    return Dataset.from_list(rows * int(json.loads((folder / "size.json").read_text())["batches"]))


def sft(folder: Path, rows: Any, common: Any, pace: Pace) -> Any:
    return learn_texts(
        folder, rows["sft"], common, pace, per_device_train_batch_size=len(rows["sft"])
    )


def packed(folder: Path, rows: Any, common: Any, pace: Pace) -> Any:
    """Rows packed into one of the length that they have together, without leaks where it can."""
    from transformers.utils import is_flash_attn_2_available

    kernel = "flash_attention_2" if is_flash_attn_2_available() else "sdpa"
    pace.facts["attention"] = kernel
    size = json.loads((folder / "size.json").read_text())
    return learn_texts(
        folder,
        rows["packed"],
        common,
        pace,
        per_device_train_batch_size=1,
        packing=True,
        max_length=size["packed"][0] * size["packed"][1],
        model_init_kwargs={"attn_implementation": kernel},
    )


def learn_texts(folder: Path, rows: Any, common: Any, pace: Pace, **batch: Any) -> Any:
    from trl import SFTConfig, SFTTrainer

    path = folder / "policy"
    trainer = SFTTrainer(
        str(path),
        args=SFTConfig(train_sampling_strategy="sequential", **batch, **common),
        train_dataset=repeated(folder, rows),
        processing_class=tokenizer_of(path),
    )
    first = trainer.train_dataset[: batch["per_device_train_batch_size"]]["input_ids"]
    pace.facts["tokens"] = sum(len(ids) for ids in first)
    return trainer


def dpo(folder: Path, rows: Any, common: Any, pace: Pace, *, precomputed: bool = False) -> Any:
    from trl import DPOConfig, DPOTrainer

    args = DPOConfig(
        per_device_train_batch_size=len(rows["pairs"]),
        train_sampling_strategy="sequential",
        precompute_ref_log_probs=precomputed,
        **common,
    )
    path = folder / "policy"
    trainer = DPOTrainer(
        str(path),
        args=args,
        train_dataset=repeated(folder, rows["pairs"]),
        processing_class=tokenizer_of(path),
    )
    first = trainer.train_dataset[: len(rows["pairs"])]
    pace.facts["tokens"] = sum(
        2 * len(prompt) + len(chosen) + len(rejected)
        for prompt, chosen, rejected in zip(
            first["prompt_ids"], first["chosen_ids"], first["rejected_ids"], strict=True
        )
    )
    return trainer


def dpo_precomputed(folder: Path, rows: Any, common: Any, pace: Pace) -> Any:
    return dpo(folder, rows, common, pace, precomputed=True)


def reward(folder: Path, rows: Any, common: Any, pace: Pace) -> Any:
    from trl import RewardConfig, RewardTrainer

    args = RewardConfig(
        per_device_train_batch_size=len(rows["pairs"]),
        train_sampling_strategy="sequential",
        **common,
    )
    path = folder / "policy"
    model = AutoModelForSequenceClassification.from_pretrained(
        path, num_labels=1, dtype=torch.float32
    )
    torch.nn.init.zeros_(model.score.weight)
    trainer = RewardTrainer(
        model,
        args=args,
        train_dataset=repeated(folder, rows["pairs"]),
        processing_class=tokenizer_of(path),
    )
    first = trainer.train_dataset[: len(rows["pairs"])]
    sides = [first[name] for name in ("chosen_ids", "rejected_ids")]
    pace.facts["tokens"] = sum(len(ids) for side in sides for ids in side)
    return trainer


def grpo(folder: Path, rows: Any, common: Any, pace: Pace) -> Any:
    from trl import GRPOConfig, GRPOTrainer

    size = json.loads((folder / "size.json").read_text())
    pace.facts |= {"rewards": [], "lengths": []}

    def judge(completions: list[str], completion_ids: list[list[int]], **_: Any) -> list[float]:
        found = [half_reward(text) for text in completions]
        pace.facts["rewards"].append(sum(found) / len(found))
        pace.facts["lengths"].append(sum(map(len, completion_ids)))
        return found

    args = GRPOConfig(
        per_device_train_batch_size=size["groups"][0] * size["groups"][1],
        num_generations=size["groups"][1],
        max_completion_length=size["new_tokens"],
        beta=0.0,
        **common | {"learning_rate": RL_LEARNING_RATE},
    )
    path = folder / "endless"
    return GRPOTrainer(
        str(path),
        reward_funcs=judge,
        args=args,
        train_dataset=Dataset.from_list([{"prompt": text} for text in rows["prompts"]]),
        processing_class=tokenizer_of(path),
    )


TRAINERS = {
    "sft": sft,
    "packed": packed,
    "dpo": dpo,
    "dpo_precomputed": dpo_precomputed,
    "reward": reward,
    "grpo": grpo,
}

if __name__ == "__main__":
    main()
