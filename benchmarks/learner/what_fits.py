"""The table at the top of docs/scale.md: for a model, a task and a GPU, what is to be set.

    python -m benchmarks.learner.what_fits            # prints it
    python -m benchmarks.learner.what_fits --write    # puts it into docs/scale.md

Each cell is the first step of the task's ladder at which the stage that trains takes at most nine
tenths of the GPU, by the count of `posttrain plan --memory`. Ladders begin with the shipped recipe
as it is, and go from what costs least to what costs most. Nothing is measured or fetched here.
"""

import argparse
import json
import math
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from posttrain.cli.plan_memory import PROMPT_TOKENS
from posttrain.learning.memory.sampling import position_bytes
from posttrain.operations.memory_plan.machine import named_machine
from posttrain.operations.memory_plan.models import ModelFinder
from posttrain.operations.memory_plan.plan import plan_memory
from posttrain.pipeline.recipe import load_recipe
from posttrain.stage.spec import Dag

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "scale.md"
ALIKE = {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "torch_dtype": "bfloat16"}
MODELS: Mapping[str, Mapping[str, object]] = {
    name: {
        **ALIKE,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": keys,
        "vocab_size": vocabulary,
        "tie_word_embeddings": vocabulary == 151936,
        "max_position_embeddings": 32768,
    }
    for name, hidden, inner, layers, heads, keys, vocabulary in (
        ("0.5B", 896, 4864, 24, 14, 2, 151936),
        ("1.5B", 1536, 8960, 28, 12, 2, 151936),
        ("3B", 2048, 11008, 36, 16, 2, 151936),
        ("7B", 3584, 18944, 28, 28, 4, 152064),
    )
}
"""What config.json of Qwen2.5 says at each size (arXiv 2412.15115, table 1, and the models' pages
at the hub): shapes, and whether the embeddings are the head too."""
GPUS = ("16GB", "24GB", "48GB", "80GB")
FREE = 0.1
"""Share of a GPU that is left to CUDA and to what an allocator cannot reuse."""
DRAWN = 32
"""Sequences that vLLM's share must hold beside the weights, or it would draw too few at once."""
BYTES = 2
"""Of a number of vLLM's."""

STEPS: Mapping[str, tuple[str, ...]] = {
    "small": ("micro_batch_tokens=4096",),
    "8bit": ("optimization.states=8bit",),
    "bf16": ("learner.weights=bf16",),
    "lora": ("learner.lora={rank: 16}",),
    "nf4": ("learner.weights=nf4",),
    "adapter": ("learner.lora.save=adapter",),
    "sleep": ("engine.sleep=true",),
    "share": ("engine.gpu_memory_utilization=0.7",),
}
"""The words of the table, and the settings of the stage that each stands for."""
UNDER = {("rl", "micro_batch_tokens=4096"): "updates.micro_batch_tokens=4096"}
"""Where a stage has a setting in another place."""


@dataclass(frozen=True)
class Task:
    """A row of the table for each model."""

    recipe: str
    stage: str
    ladder: tuple[str, ...]
    """Words to try, from what costs least; the first of them is the recipe as it is."""


FULL = ("", "small", "small 8bit", "small 8bit bf16")
TASKS: Mapping[str, Task] = {
    "SFT": Task("sft-qwen", "sft", FULL),
    "LoRA SFT": Task("sft-lora-qwen", "sft", ("", "bf16", "bf16 adapter", "nf4", "nf4 adapter")),
    "DPO": Task("dpo-qwen", "preference", (*FULL, "small lora bf16", "small lora nf4 adapter")),
    "reward": Task("reward-qwen", "reward", (*FULL, "small lora bf16", "small lora nf4")),
    "GRPO": Task(
        "gsm8k-qwen",
        "rl",
        (
            *("", "small", "small sleep", "small sleep 8bit", "small sleep 8bit bf16"),
            *("small sleep lora bf16", "small sleep share lora bf16", "small sleep share lora nf4"),
        ),
    ),
}


def main() -> None:
    """Print the table, or write it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="put it into docs/scale.md")
    options = parser.parse_args()
    found = table()
    if options.write:
        text = DOCUMENT.read_text(encoding="utf-8")
        DOCUMENT.write_text(re.sub(_PLACE, lambda _: found, text, flags=re.S), encoding="utf-8")
    else:
        print(found, end="")


HEAD = f"| model | task | {' | '.join(each.replace('GB', ' GB') for each in GPUS)} |"
_PLACE = re.escape(HEAD) + r".*?\n(?!\|)"


def table() -> str:
    """Every cell, as lines of Markdown."""
    lines = [HEAD, "|" + "---|" * (2 + len(GPUS))]
    with tempfile.TemporaryDirectory() as folder:
        for model in MODELS:
            config = write_config(Path(folder), model)
            for task in TASKS:
                cells = [cell(task, gpu, config) for gpu in GPUS]
                lines.append(f"| {model} | {task} | {' | '.join(cells)} |")
    return "".join(f"{each}\n" for each in lines)


def write_config(folder: Path, model: str) -> Path:
    """Write the config.json of a model into a folder of its own."""
    own = folder / model
    own.mkdir()
    (own / "config.json").write_text(json.dumps(MODELS[model]))
    return own


def cell(task: str, gpu: str, config: Path) -> str:
    """Find the first words with which a task fits.

    Args:
        task: Of `TASKS`.
        gpu: Its memory, such as ``24GB``.
        config: Folder with the model's config.json.

    Returns:
        Words, or a dash where none do.

    """
    asked = TASKS[task]
    for words in asked.ladder:
        if peak(asked, words, gpu, config) <= (1 - FREE) * named_machine(gpu, 1).capacity:
            return words or "as it is"
    return "-"


def settings(asked: Task, words: str) -> list[str]:
    """Spell words as what `--set` takes."""
    return [
        f"{asked.stage}.{UNDER.get((asked.stage, each), each)}"
        for word in words.split()
        for each in STEPS[word]
    ]


def peak(asked: Task, words: str, gpu: str, config: Path) -> float:
    """Count the stage that trains.

    Args:
        asked: The task.
        words: What is set beside its recipe.
        gpu: As for `cell`.
        config: As for `cell`.

    Returns:
        Bytes; infinite where vLLM's share does not hold the model and `DRAWN` sequences.

    """
    stage = _flow(asked.recipe, tuple(settings(asked, words))).stages[asked.stage]
    finder, machine = _finder(asked.recipe, config), named_machine(gpu, 1)
    engine = getattr(stage.config, "engine", None)
    if engine is not None:
        model = finder.models(stage)["policy"]
        tokens = DRAWN * (PROMPT_TOKENS + stage.config.max_tokens)
        needed = BYTES * model.parameters + tokens * position_bytes(model, BYTES)
        if engine.gpu_memory_utilization * machine.capacity < needed:
            return math.inf
    alone = Dag({asked.stage: stage})
    (counted,) = plan_memory(alone, finder, machine, prompt_tokens=PROMPT_TOKENS).stages
    return counted.peak.total


@cache
def _flow(recipe: str, overrides: tuple[str, ...]) -> Dag:
    return load_recipe(ROOT / "recipes" / recipe, overrides).resolve(ROOT)


@cache
def _finder(recipe: str, config: Path) -> ModelFinder:
    """Of one config for all models of a recipe, which it looks for in no outputs."""
    return ModelFinder(_flow(recipe, ()), lambda _: config / "made", {"": config})


if __name__ == "__main__":
    main()
