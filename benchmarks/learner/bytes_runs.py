"""What `bytes` measures: each run builds what trains, ours or TRL's, and says what updates it."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.learner.settings import SPECIAL

VOCABULARY = 2048
STEPS, ROWS, TOKENS = 3, 2, 6
RANK = 8
KL = 0.05


class Built(NamedTuple):
    """What trains, before its first update."""

    model: Any
    updates: Callable[[], Any]
    """Makes all of them."""
    keeps: bool = True
    """Whether the optimizer's states are still there when they are over."""


def words() -> list[str]:
    """The vocabulary."""
    return [*SPECIAL, *(f"w{number}" for number in range(VOCABULARY - len(SPECIAL)))]


def sft(policy: Path, said: Mapping[str, Any]) -> Built:
    """Ours, by the loop of the SFT stage."""
    from posttrain.learning.training.curve import Curve
    from posttrain.learning.training.next_token import Corpus, next_token_objective
    from posttrain.learning.training.prepare import load_to_train, prepare_for_training
    from posttrain.learning.training.supervised import train
    from posttrain.stage.context import StageContext
    from tasks.sft.config import SftConfig

    batches = {"batch_tokens": ROWS * TOKENS, "checkpoint_every": 0, "most_left_out": 1.0}
    config = SftConfig.parse({"steps": STEPS, **batches, **said}, where="sft")
    context = StageContext.quiet(policy.with_name("scratch"))
    texts = [" ".join(words()[9 * row + 3 : 9 * row + 1 + TOKENS]) for row in range(ROWS)]
    loaded = load_to_train(policy, config.learner, device="cpu")
    objective, _, _ = next_token_objective(
        loaded, Corpus(["w0"] * ROWS, texts), config=config, context=context, where="sft"
    )
    trainable = prepare_for_training(loaded.model, config.learner, seed=0)

    def updates() -> None:
        curve = Curve(context)
        train(trainable, objective, config=config, context=context, curve=curve, prefix="sft")

    return Built(trainable.model, updates, keeps=False)


def rl(policy: Path, said: Mapping[str, Any]) -> Built:
    """Ours, by the learner of the RL stage with a KL to the reference; nothing is sampled."""
    from posttrain.learning.rl.batch import TrainSample
    from posttrain.learning.rl.build import build_learner
    from posttrain.learning.training.prepare import load_to_train
    from posttrain.stage.context import StageContext
    from tasks.rl.config import RlStageConfig

    algorithm = {"regularizers": {"kl": {"coefficient": KL}}}
    given = {"steps": STEPS, "max_tokens": TOKENS, "algorithm": algorithm, **said}
    config = RlStageConfig.parse(given, where="rl")
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
    context = StageContext.quiet(policy.with_name("scratch"))
    loaded = load_to_train(policy, config.learner, device="cpu")
    learner = build_learner(loaded, config, context, inputs={})

    def updates() -> None:
        for step in range(STEPS):
            learner.update(samples, step=step, index=0, seed=0)

    return Built(loaded.model, updates)


def trl_sft(policy: Path, said: Mapping[str, Any]) -> Built:
    """TRL's SFTTrainer."""
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    from benchmarks.learner.peer import tokenizer_of

    text = " ".join(words()[3 : 2 + TOKENS])
    trainer = SFTTrainer(
        str(policy),
        args=SFTConfig(**_of_trl(policy, said)),
        train_dataset=Dataset.from_list([{"text": text}] * (ROWS * STEPS)),
        processing_class=tokenizer_of(policy),
    )
    return Built(trainer.model, trainer.train)


def trl_grpo(policy: Path, said: Mapping[str, Any]) -> Built:
    """TRL's GRPOTrainer with a KL to the reference; it samples its answers, too."""
    return _grpo(policy, said)


def trl_lora(policy: Path, said: Mapping[str, Any]) -> Built:
    """TRL's GRPOTrainer with peft."""
    from peft import LoraConfig

    adapters = LoraConfig(r=RANK, lora_alpha=2 * RANK, target_modules="all-linear")
    return _grpo(policy, said, peft_config=adapters)


def trl_qlora(policy: Path, said: Mapping[str, Any]) -> Built:
    """TRL's GRPOTrainer with peft over 4 bits, as QLoRA has them (arXiv 2305.14314)."""
    import torch
    from transformers import BitsAndBytesConfig

    quantized = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
    )
    loaded = {"dtype": "bfloat16", "quantization_config": quantized}
    return trl_lora(policy, {"model_init_kwargs": loaded, **said})


def _grpo(policy: Path, said: Mapping[str, Any], **options: Any) -> Built:
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    from benchmarks.learner.peer import tokenizer_of

    def judged(completions: list[str], **_: Any) -> list[float]:
        return [float(number) for number in range(len(completions))]

    drawn = {"num_generations": ROWS, "max_completion_length": TOKENS - 2, "beta": KL}
    trainer = GRPOTrainer(
        str(policy),
        reward_funcs=judged,
        args=GRPOConfig(**drawn, **_of_trl(policy, said)),
        train_dataset=Dataset.from_list([{"prompt": "w1 w2"}] * (ROWS * STEPS)),
        processing_class=tokenizer_of(policy),
        **options,
    )
    return Built(trainer.model, trainer.train)


def _of_trl(policy: Path, said: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments for one device, with what TRL's guide to memory asks for."""
    return {
        "output_dir": str(policy.with_name("peer")),
        "max_steps": STEPS,
        "per_device_train_batch_size": ROWS,
        "use_cpu": True,
        "bf16": True,
        "gradient_checkpointing": True,
        "report_to": "none",
        "save_strategy": "no",
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
        "model_init_kwargs": {"dtype": "bfloat16"},
        **said,
    }


RUNS: Mapping[str, Callable[[Path, Mapping[str, Any]], Built]] = {
    "sft": sft,
    "rl": rl,
    "trl_sft": trl_sft,
    "trl_grpo": trl_grpo,
    "trl_lora": trl_lora,
    "trl_qlora": trl_qlora,
}
"""By the name in a case."""
