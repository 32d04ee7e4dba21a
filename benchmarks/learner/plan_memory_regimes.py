"""The peaks of two training steps of small models, counted and measured, regime by regime.

    python -m benchmarks.learner.plan_memory_regimes [--only REGIME] [--json PATH]

What `plan_memory` asks of whole stages, asked of single settings, architectures and shapes:
peaks in the head, in a layer, in the embeddings and in the optimizer's step. Measured is the most
that torch's allocator had handed out at a time.
"""

import argparse
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers

from benchmarks.learner.plan_memory import by_tensors
from benchmarks.sampling.machine import described
from posttrain.learning.memory.activations import BatchRows
from posttrain.learning.memory.asked import StageQuestion
from posttrain.learning.memory.peak import Moment, peak_of
from posttrain.learning.memory.shapes import shapes_of
from posttrain.learning.memory.training import Batch, training_moments
from posttrain.learning.models.build_optim import build_optimizer
from posttrain.learning.models.logprobs import wanted_logprobs
from posttrain.learning.models.optimization import OptimizationConfig
from posttrain.learning.training.config import LearnerConfig
from posttrain.learning.training.prepare import prepare_for_training
from tasks.sft.config import SftConfig

_SIZES = {
    "vocab_size": 2048,
    "hidden_size": 128,
    "intermediate_size": 384,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": True,
}
_FEW_WORDS = {"vocab_size": 64}
_WIDE = {
    "vocab_size": 32768,
    "hidden_size": 1536,
    "intermediate_size": 256,
    "num_hidden_layers": 1,
}


@dataclass(frozen=True)
class Regime:
    """A small model, how it learns, and on what."""

    learner: Mapping[str, Any]
    sizes: Mapping[str, Any]
    family: str = "Qwen2"
    optimizer: str = "adamw"
    rows: tuple[int, int] = (4, 256)
    parts: int = 1
    """Micro-batches of a step."""


_LORA = {"lora": {"rank": 8}}
_AGAIN = {"activation_checkpointing": True}
_BF16 = {"precision": "bf16"}
_UNTIED = {"tie_word_embeddings": False}

REGIMES: Mapping[str, Regime] = {
    "plain": Regime({}, {}),
    "untied": Regime({}, _UNTIED, "Llama"),
    "untied, two micro-batches": Regime({}, _UNTIED, "Llama", parts=2),
    "muon, few tokens": Regime({}, {}, optimizer="muon", rows=(1, 64)),
    "packing": Regime({"packing": True}, {}),
    "bf16": Regime(_BF16, {}),
    "recomputed": Regime(_AGAIN, {}),
    "bf16, recomputed": Regime({**_BF16, **_AGAIN}, {}),
    "lora": Regime(_LORA, {}),
    "lora, bf16": Regime({**_LORA, **_BF16}, {}),
    "lora, recomputed": Regime({**_LORA, **_AGAIN}, {}),
    "moving average": Regime({"ema_decay": 0.9}, {}),
    "eager attention": Regime({"attention": "eager"}, {}),
    "16 tokens": Regime({}, {}, rows=(1, 16)),
    "few words": Regime({}, _FEW_WORDS),
    "few words, bf16": Regime(_BF16, _FEW_WORDS),
    "few words, recomputed": Regime(_AGAIN, _FEW_WORDS),
    "few words, bf16, recomputed": Regime({**_BF16, **_AGAIN}, _FEW_WORDS),
    "few words, lora": Regime(_LORA, _FEW_WORDS),
    "wide head": Regime({}, _WIDE, rows=(2, 600)),
    "Qwen 3": Regime({}, {"head_dim": 32}, "Qwen3"),
    "Gemma": Regime({}, {"head_dim": 32}, "Gemma"),
    "GPT-NeoX": Regime({}, {}, "GPTNeoX"),
    "Mixtral": Regime({}, {"num_local_experts": 4}, "Mixtral"),
    "Gemma 2": Regime({}, {"head_dim": 32}, "Gemma2"),
}


def main() -> None:
    """Count and measure."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", choices=REGIMES)
    parser.add_argument("--json", type=Path, default=Path(__file__).with_suffix(".json"))
    chosen = parser.parse_args()
    found = json.loads(chosen.json.read_text())["regimes"] if chosen.only else {}
    torch.set_num_threads(1)
    for name in [chosen.only] if chosen.only else REGIMES:
        peak, measured = counted(REGIMES[name]), by_tensors(lambda name=name: train(REGIMES[name]))
        found[name] = {"counted": peak.total, "measured": measured, "moment": peak.name}
        print(line(name, found[name]), flush=True)
    report = {"machine": described(1), "regimes": found}
    chosen.json.write_text(json.dumps(report, indent=1, sort_keys=True) + "\n")


def config_of(regime: Regime) -> Any:
    """The architecture."""
    return getattr(transformers, f"{regime.family}Config")(**{**_SIZES, **regime.sizes})


def counted(regime: Regime) -> Moment:
    """What the accounting says."""
    config = SftConfig.parse(
        {"learner": regime.learner, "optimization": {"optimizer": regime.optimizer}}, where="sft"
    )
    shapes, (count, length) = shapes_of(config_of(regime)), regime.rows
    asked = StageQuestion(config, shapes)
    rows = BatchRows(count, length, count * (length - 1))
    if asked.learner.packing:
        rows = BatchRows(1, count * length, count * (length - 1))
    batch = Batch(rows, accumulates=regime.parts > 1)
    return peak_of(training_moments(shapes, asked.learner, batch))


def train(regime: Regime) -> None:
    """Take two steps, so that the optimizer remembers in the second one."""
    config, (count, length) = config_of(regime), regime.rows
    model = transformers.AutoModelForCausalLM.from_config(config).float()
    trainable = prepare_for_training(model, LearnerConfig(**regime.learner), seed=0)
    optimizer = build_optimizer(model, OptimizationConfig(optimizer=regime.optimizer))
    model.train()
    ids_BT = torch.randint(5, config.vocab_size, (count, length))
    positions_BT = torch.arange(length).repeat(count, 1)
    places = {}
    if regime.learner.get("packing"):
        ids_BT, positions_BT = ids_BT.view(1, -1), positions_BT.view(1, -1)
        places = {"position_ids_BT": positions_BT}
    for _ in range(2):
        for _ in range(regime.parts):
            with trainable.computing():
                found_N, _ = wanted_logprobs(model, ids_BT, wanted_BT=positions_BT > 0, **places)
                loss = -found_N.mean()
            loss.backward()
            del found_N, loss
        optimizer.step(learning_rate=1e-4, max_grad_norm=1.0)
        trainable.after_step()


def line(name: str, case: Mapping[str, Any]) -> str:
    """A row of the README's table."""
    error = 100 * (case["counted"] / case["measured"] - 1)
    sizes = f"{case['counted'] / 1e6:.1f} | {case['measured'] / 1e6:.1f}"
    return f"| {name} | {sizes} | {error:+.1f}% | {case['moment']} |"


if __name__ == "__main__":
    main()
