"""What the profile `real` sets where recipe and method say nothing, and which values are usual.

Every value has its source beside it, or says that it is a choice of ours:

- Tulu 3: arXiv 2411.15124; the commands are in allenai/open-instruct, docs/tulu3.md at 0becd2c.
- Open-R1: huggingface/open-r1, recipes/Qwen2.5-1.5B-Instruct at 1b6fcac.
- Handbook: huggingface/alignment-handbook, recipes/zephyr-7b-beta at 19f0345; of QLoRA, that of SFT
  at 0213b5b and that of DPO at 4231254.
- verl: volcengine/verl, examples/grpo_trainer and examples/ppo_trainer at 03aefba, 0061a22, 01915a0
  and 6c9e44e (run_qwen2-7b.sh, run_qwen2_5-3b_gsm8k_grpo_lora.sh, run_qwen2-7b_seq_balance.sh,
  run_qwen2.5-0.5b.sh).
- TRL: the defaults of its configs in 1.16.
- TRL on LoRA: huggingface/trl, docs/source/lora_without_regret.md at 01892a2, after Schulman et
  al., "LoRA Without Regret" (2025).

What is not here has the same default at every size. No algorithm is: a KL term, a clip range or a
loss belong to a method (TRL's GRPO has no KL, verl's example 0.001), and a profile changes none.
Nor is max_length or max_tokens: `auto` goes by the rows, and by the answers that were taught.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Values = Mapping[str, Any]


@dataclass(frozen=True)
class ProfileSets:
    """What a profile sets for the stages of one task, as a recipe's section would say it."""

    always: Values = field(default_factory=dict)
    on_gpu: Values = field(default_factory=dict)
    """Beside it where `run.device` is cuda."""
    with_lora: Values = field(default_factory=dict)
    """Over both where the section trains adapters."""
    with_critic: Values = field(default_factory=dict)
    """Beside them where the algorithm has a critic."""
    of_imported: bool = False
    """Whether they are for an imported model alone, and not for one that begins from nothing."""


_MICRO = 8192
"""Ours: with activation checkpointing what 8192 tokens keep of a model of 8 billion parameters (32
layers of width 4096, in bfloat16) is 8192 x 4096 x 32 x 2 bytes = 2.1 GB. verl takes 16384."""

_CHECKPOINTED = {"activation_checkpointing": True}
"""Open-R1, Handbook, verl, TRL (the default of every config), Tulu 3 but for SFT at 8B."""

_BF16 = {"learner": {"precision": "bf16"}}
"""Tulu 3, Open-R1, Handbook, TRL (the default of every config). On a GPU alone: few CPUs compute
bfloat16 faster than float32."""

_VLLM = {"engine": {"kind": "vllm", "dtype": "bfloat16"}}
"""verl (rollout.name=vllm), Open-R1 (use_vllm), Tulu 3 (vLLM); in the format that the learner
computes in, where `auto` would be that of the imported checkpoint."""

_RL = {
    # verl: problems 1024, 5 rollouts of each, on eight GPUs. Ours: 512 rollouts for one of them.
    "problems_per_step": 64,
    # verl (both sizes), TRL (GRPOConfig); Tulu 3: 3e-7 at 8B.
    "optimization": {"optimizer": "adamw", "learning_rate": 1e-6},
    "updates": {"micro_batch_tokens": _MICRO},
    # verl (save_freq 20); a checkpoint has three numbers for each weight.
    "checkpoint_every": 20,
    "learner": _CHECKPOINTED,
}
# verl: critic.optim.lr at 0.5B and 7B.
_RL_WITH_CRITIC = {"critic": {"learning_rate": 1e-5}}
# TRL on LoRA: 1e-5 where full fine-tuning has 1e-6.
_RL_WITH_LORA = {"optimization": {"learning_rate": 1e-5}}

# Ours: 64 answers of 2048 tokens are 17 GB of keys and values in a model of 8 billion parameters
# (32 layers, 8 heads of 128, in bfloat16). vLLM forms its batches itself.
_SAMPLING = ProfileSets(always={"batch_size": 64}, on_gpu=_VLLM)

REAL: Mapping[str, ProfileSets] = {
    "tasks.sft": ProfileSets(
        always={
            # Tulu 3: 128 rows a step. Ours: of 512 tokens.
            "batch_tokens": 65536,
            "micro_batch_tokens": _MICRO,
            # Open-R1 at 1.5B; Tulu 3: 5e-6 at 8B; Handbook, TRL: 2e-5.
            "optimization": {"learning_rate": 1e-5},
            # Open-R1.
            "learner": {"packing": True, **_CHECKPOINTED},
        },
        on_gpu=_BF16,
        # Handbook (QLoRA), TRL on LoRA: 2e-4. TRL on LoRA: fewer than 32 rows a step. Ours: of 512
        # tokens.
        with_lora={"batch_tokens": 16384, "optimization": {"learning_rate": 2e-4}},
    ),
    # Mid-training. Ours: as for SFT.
    "tasks.pretrain": ProfileSets(
        always={
            "batch_tokens": 65536,
            "micro_batch_tokens": _MICRO,
            "optimization": {"optimizer": "adamw", "learning_rate": 1e-5},
            "learner": {"packing": True, **_CHECKPOINTED},
        },
        on_gpu=_BF16,
        with_lora={"batch_tokens": 16384, "optimization": {"learning_rate": 2e-4}},
        of_imported=True,
    ),
    "tasks.reward": ProfileSets(
        always={
            # Ours: 64 pairs of two answers of 512 tokens.
            "batch_tokens": 65536,
            "micro_batch_tokens": _MICRO,
            # Tulu 3, at 8B.
            "optimization": {"optimizer": "adamw", "learning_rate": 3e-6},
            "learner": _CHECKPOINTED,
        },
        on_gpu=_BF16,
        # TRL on LoRA: ten times the rate of full fine-tuning, and fewer than 32 rows a step.
        with_lora={"batch_tokens": 16384, "optimization": {"learning_rate": 3e-5}},
    ),
    "tasks.preference": ProfileSets(
        always={
            # Tulu 3, Handbook: 128 pairs a step. Ours: of two answers of 512 tokens.
            "batch_tokens": 131072,
            "micro_batch_tokens": _MICRO,
            # Tulu 3 at 8B, Handbook at 7B; TRL: 1e-6.
            "optimization": {"learning_rate": 5e-7},
            "learner": _CHECKPOINTED,
        },
        on_gpu=_BF16,
        # Handbook (QLoRA): 5e-6. TRL on LoRA: fewer than 32 rows a step, here pairs.
        with_lora={"batch_tokens": 32768, "optimization": {"learning_rate": 5e-6}},
    ),
    "tasks.rl": ProfileSets(_RL, _BF16 | _VLLM, _RL_WITH_LORA, _RL_WITH_CRITIC),
    "tasks.coevolve": ProfileSets(_RL, _BF16, _RL_WITH_LORA, _RL_WITH_CRITIC),
    # Its `run` says again what the section of a run says, but for the engine.
    "tasks.series": ProfileSets(
        {"run": _RL}, {"run": _BF16}, {"run": _RL_WITH_LORA}, {"run": _RL_WITH_CRITIC}
    ),
    "tasks.probe": _SAMPLING,
    "tasks.evaluate": _SAMPLING,
}
"""Package of a task -> what the profile `real` sets for its stages."""

UsualRange = tuple[float, float]
"""The smallest and the largest value that one of the sources has."""


@dataclass(frozen=True)
class UsualValues:
    """Where a value of a section lies in what the sources train, by its dotted path."""

    full: Mapping[str, UsualRange]
    with_lora: Mapping[str, UsualRange]


_RATE = "optimization.learning_rate"
_BATCH = "batch_tokens"
"""Ours, as in `REAL`: the sources count rows."""
_CRITIC = "critic.learning_rate"

USUAL: Mapping[str, UsualValues] = {
    # Tulu 3: 2e-6 at 70B; Handbook, TRL: 2e-5. Adapters: TRL on LoRA, 2e-5 to 2e-4.
    "tasks.sft": UsualValues({_RATE: (2e-6, 2e-5), _BATCH: (65536, 65536)}, {_RATE: (2e-5, 2e-4)}),
    # Tulu 3: 3e-6; TRL: 1e-4. Adapters: ten times as much, as TRL on LoRA has it.
    "tasks.reward": UsualValues({_RATE: (3e-6, 1e-4)}, {_RATE: (3e-5, 1e-3)}),
    # Tulu 3: 2e-7 at 70B; TRL: 1e-6. Adapters: Handbook, and ten times TRL's rate.
    "tasks.preference": UsualValues(
        {_RATE: (2e-7, 1e-6), _BATCH: (131072, 131072)}, {_RATE: (5e-6, 1e-5)}
    ),
    # Tulu 3: 1e-7 at 70B; Open-R1: 2e-5. Adapters: verl, TRL on LoRA. Critics: verl.
    "tasks.rl": UsualValues(
        {_RATE: (1e-7, 2e-5), _CRITIC: (1e-5, 1e-5)}, {_RATE: (3e-6, 5e-5), _CRITIC: (1e-5, 1e-5)}
    ),
}
"""Package of a task -> the ranges of the sources, for models of 0.5 to 70 billion parameters."""
