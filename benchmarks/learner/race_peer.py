"""TRL's side of `race`: run by the interpreter of an environment that has it.

VERIFIERS_FROM=SITE_PACKAGES PEER/bin/python -m benchmarks.learner.race_peer FOLDER WEIGHTS BURST
STEPS LEARNING_RATE
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from benchmarks.learner.pace import Pace
from benchmarks.learner.peer import Paced, tokenizer_of

GROUP, PROBLEMS, MAX_TOKENS = 8, 32, 72
"""The default recipe's, as are the clip range, the schedule and the norm below."""


def main() -> None:
    """Train until the parent has heard enough."""
    folder, weights, burst, steps, rate = sys.argv[1:]
    torch.set_num_threads(1)
    kept: list[Any] = []
    pace = Pace(
        warm_up=1,
        burst=int(burst),
        keep=lambda: torch.save(kept[0].model.state_dict(), weights),
    )
    path, rows = Path(folder) / "policy", json.loads((Path(folder) / "problems.json").read_text())
    tokenizer = tokenizer_of(path)
    for row in rows:
        ids = tokenizer(row["prompt"], add_special_tokens=False)["input_ids"]
        assert ids == row["ids"], f"TRL would read {ids} where ours reads {row['ids']}"
    args = GRPOConfig(
        output_dir=str(Path(folder) / Path(weights).stem),
        max_steps=int(steps),
        per_device_train_batch_size=GROUP * PROBLEMS,
        num_generations=GROUP,
        max_completion_length=MAX_TOKENS,
        temperature=1.0,
        beta=0.0,
        loss_type="dapo",
        scale_rewards="none",
        epsilon=0.2,
        epsilon_high=0.28,
        learning_rate=float(rate),
        adam_beta2=0.95,
        weight_decay=0.0,
        max_grad_norm=1.0,
        lr_scheduler_type="linear",
        warmup_steps=5,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
        dataloader_pin_memory=False,
        seed=0,
    )
    given = [{"prompt": row["prompt"], "problem": row["problem"]} for row in rows]
    trainer = GRPOTrainer(
        str(path),
        reward_funcs=judge(),
        args=args,
        train_dataset=Dataset.from_list(given),
        processing_class=tokenizer,
    )
    kept.append(trainer)
    trainer.add_callback(Paced(trainer, pace))
    trainer.train()


def judge() -> Any:
    """The scores of the problems' own verifiers, the same answer only once, as ours has it."""
    sys.path.append(os.environ["VERIFIERS_FROM"])
    from posttrain.data.schemas import Problem
    from posttrain.learning.rewards.verify import VerifierCache

    known = VerifierCache()

    def scores(completions: list[str], problem: list[str], **_: Any) -> list[float]:
        owners = [Problem(**json.loads(each)) for each in problem]
        found = known(list(zip(completions, owners, strict=True)))
        return [float(score.value or 0.0) for score in found]

    return scores


if __name__ == "__main__":
    main()
