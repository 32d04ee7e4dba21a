"""TRL's side of `buffer_kill`: one run, killed or not, gone on with where a checkpoint is there."""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import PreTrainedTokenizerFast, TrainerCallback

from benchmarks.learner.settings import GROUP, PROBLEMS, half_reward


class Killed(TrainerCallback):
    """Ends the process at the end of a step, as `kill -9` does."""

    def __init__(self, at: int) -> None:
        self.at = at

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == self.at:
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Train and save."""
    from trl import GRPOConfig, GRPOTrainer

    job = json.loads(sys.argv[1])
    given, folder = Path(job["given"]), Path(job["folder"])
    torch.set_num_threads(1)
    rows = json.loads((given / "rows.json").read_text())
    size = json.loads((given / "size.json").read_text())
    args = GRPOConfig(
        output_dir=str(folder / "checkpoints"),
        per_device_train_batch_size=GROUP * PROBLEMS // job["minibatches"],
        steps_per_generation=job["minibatches"],
        num_iterations=job["epochs"],
        num_generations=GROUP,
        max_completion_length=size["new_tokens"],
        beta=0.0,
        max_steps=job["updates"],
        save_strategy="steps",
        save_steps=job["checkpoint"],
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        learning_rate=1e-3,
        lr_scheduler_type="constant",
        warmup_steps=0,
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=False,
        seed=0,
    )

    def judge(completions: list[str], **_: Any) -> list[float]:
        return [half_reward(text) for text in completions]

    trainer = GRPOTrainer(
        str(given / "endless"),
        reward_funcs=judge,
        args=args,
        train_dataset=Dataset.from_list([{"prompt": text} for text in rows["prompts"]]),
        processing_class=PreTrainedTokenizerFast.from_pretrained(given / "endless"),
    )
    trainer.add_callback(Killed(job["kill"]))
    there = any((folder / "checkpoints").glob("checkpoint-*"))
    trainer.train(resume_from_checkpoint=there or None)
    trainer.save_model(str(folder / "final"))


if __name__ == "__main__":
    main()
