"""Architectures of transformers, tiny and random, and what docs/architectures.md says of each.

``python tests/architectures.py`` writes the table; a test holds each row against what it measures.
"""

import copy
import re
import sys
from pathlib import Path

SIZES = {
    "vocab_size": 300,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    # Large weights, so that the distributions are far from uniform and a wrong one shows.
    "initializer_range": 0.3,
}
WIDE = {**SIZES, "intermediate_size": 64}
GROUPED = {**WIDE, "num_key_value_heads": 2}
HEADS = {**GROUPED, "head_dim": 8}
WINDOW = {"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"]}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
SHARED = {**EXPERTS, "shared_expert_intermediate_size": 16}
LOCAL = {"num_local_experts": 4, "num_experts_per_tok": 2}
ROUTED = {
    **{"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16},
    **{"first_k_dense_replace": 1, "n_group": 1, "topk_group": 1, "n_shared_experts": 1},
}
LATENT = {
    **{**WIDE, "num_key_value_heads": 4, "q_lora_rank": 16, "kv_lora_rank": 16},
    **{"qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8},
}
OLD = {
    **{"vocab_size": 300, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64},
    **{key: SIZES[key] for key in ("initializer_range", *[k for k in SIZES if "token" in k])},
}
STATES = {"state_size": 8, "vocab_size": 300, "hidden_size": 32, "num_hidden_layers": 2}
SSM = {
    "mamba_n_heads": 4,
    "mamba_d_head": 16,
    "mamba_d_state": 8,
    "mamba_n_groups": 1,
    "mamba_chunk_size": 8,
}
LINEAR = {
    "layer_types": ["linear_attention", "full_attention"],
    **{"linear_num_value_heads": 4, "linear_num_key_heads": 2},
    **{"linear_key_head_dim": 8, "linear_value_head_dim": 8},
}
LLAMA3 = {
    **{"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0},
    **{"high_freq_factor": 4.0, "original_max_position_embeddings": 16},
}
PER_LAYER = {
    **{"vocab_size_per_layer_input": 300, "hidden_size_per_layer_input": 8, "laurel_rank": 8},
    **{"num_hidden_layers": 4, "num_kv_shared_layers": 2, "activation_sparsity_pattern": [0.0] * 4},
    **{"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"] * 2},
}
FALCON = {k: v for k, v in SIZES.items() if k != "intermediate_size"}
IMAGES = {
    **{"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1},
    **{"num_attention_heads": 2, "image_size": 28, "patch_size": 14},
}
SEEING = {"image_token_id": 290, "boi_token_id": 291, "eoi_token_id": 292, "mm_tokens_per_image": 4}

ARCHITECTURES = {
    "bamba": ("Bamba", {**GROUPED, **SSM, "attn_layer_indices": [1]}),
    "bloom": ("Bloom", {**OLD, "hidden_size": 32}),
    "cohere": ("Cohere", {**GROUPED, "logit_scale": 2.0}),
    "cohere2": ("Cohere2", {**GROUPED, **WINDOW, "logit_scale": 2.0}),
    "deepseek_v2": ("DeepseekV2", {**LATENT, **ROUTED}),
    "deepseek_v3": ("DeepseekV3", {**LATENT, **ROUTED}),
    "ernie4_5": ("Ernie4_5", GROUPED),
    "exaone4": ("Exaone4", {**GROUPED, "sliding_window": 8}),
    "falcon": ("Falcon", FALCON),
    "falcon_h1": ("FalconH1", {**GROUPED, **SSM, "mamba_d_ssm": 64}),
    "gemma": ("Gemma", HEADS),
    "gemma2": ("Gemma2", {**HEADS, "sliding_window": 8, "final_logit_softcapping": 8.0}),
    "gemma3": (
        "Gemma3",
        {**SEEING, "text_config": {**HEADS, **WINDOW}, "vision_config": IMAGES},
    ),
    "gemma3_text": ("Gemma3Text", {**HEADS, **WINDOW}),
    "gemma3n_text": ("Gemma3nText", {**HEADS, **PER_LAYER}),
    "glm": ("Glm", HEADS),
    "glm4": ("Glm4", HEADS),
    "glm4_moe": ("Glm4Moe", {**HEADS, **ROUTED}),
    "gpt2": ("GPT2", OLD),
    "gpt_bigcode": ("GPTBigCode", OLD),
    "gpt_neox": ("GPTNeoX", WIDE),
    "gpt_oss": ("GptOss", {**HEADS, **LOCAL, **WINDOW}),
    "gptj": ("GPTJ", {**OLD, "rotary_dim": 4}),
    "granite": ("Granite", {**GROUPED, "logits_scaling": 0.5}),
    "granitemoe": ("GraniteMoe", {**GROUPED, **LOCAL}),
    "granitemoehybrid": (
        "GraniteMoeHybrid",
        {
            **{**GROUPED, **LOCAL, **SSM, "shared_intermediate_size": 32},
            **{"layer_types": LINEAR["layer_types"]},
        },
    ),
    "jamba": (
        "Jamba",
        {
            **{**GROUPED, "num_experts": 2, "mamba_d_state": 8, "mamba_dt_rank": 4},
            **{"use_mamba_kernels": False, "attn_layer_period": 2, "attn_layer_offset": 1},
        },
    ),
    "lfm2": ("Lfm2", {**GROUPED, "layer_types": ["conv", "full_attention"]}),
    "llama": ("Llama", {**GROUPED, "rope_parameters": LLAMA3}),
    "llama4_text": (
        "Llama4Text",
        {
            **{**HEADS, "num_local_experts": 4, "intermediate_size_mlp": 64, "moe_layers": [1]},
            **{"attention_chunk_size": 16, "no_rope_layers": [1, 0]},
        },
    ),
    "mamba": ("Mamba", STATES),
    "mamba2": ("Mamba2", {**STATES, "num_heads": 8, "head_dim": 8, "n_groups": 1, "chunk_size": 8}),
    "minimax_m2": ("MiniMaxM2", {**HEADS, **LOCAL}),
    "ministral": ("Ministral", {**HEADS, "sliding_window": 8}),
    "mistral": ("Mistral", {**GROUPED, "sliding_window": 8}),
    "mixtral": ("Mixtral", {**GROUPED, **LOCAL}),
    "mpt": (
        "Mpt",
        {"d_model": 32, "n_heads": 4, "n_layers": 2, "max_seq_len": 64, "vocab_size": 300},
    ),
    "nemotron": ("Nemotron", GROUPED),
    "olmo": ("Olmo", GROUPED),
    "olmo2": ("Olmo2", GROUPED),
    "olmo3": ("Olmo3", {**GROUPED, **WINDOW}),
    "olmoe": ("Olmoe", {**GROUPED, **EXPERTS}),
    "opt": ("OPT", {**SIZES, "ffn_dim": 64, "word_embed_proj_dim": 32, "init_std": 0.3}),
    "phi": ("Phi", GROUPED),
    "phi3": ("Phi3", GROUPED),
    "phimoe": ("Phimoe", {**GROUPED, **LOCAL}),
    "qwen2": ("Qwen2", {**GROUPED, "tie_word_embeddings": True}),
    "qwen2_moe": ("Qwen2Moe", {**GROUPED, **SHARED}),
    "qwen3": ("Qwen3", HEADS),
    "qwen3_5_text": ("Qwen3_5Text", {**HEADS, **LINEAR}),
    "qwen3_moe": ("Qwen3Moe", {**HEADS, **EXPERTS}),
    "qwen3_next": ("Qwen3Next", {**HEADS, **SHARED, **LINEAR}),
    "recurrent_gemma": (
        "RecurrentGemma",
        {**WIDE, "num_hidden_layers": 3, "attention_window_size": 8},
    ),
    "seed_oss": ("SeedOss", HEADS),
    "smollm3": ("SmolLM3", {**GROUPED, "no_rope_layers": [1, 0]}),
    "stablelm": ("StableLm", GROUPED),
    "starcoder2": (
        "Starcoder2",
        {**GROUPED, "residual_dropout": 0.1, "embedding_dropout": 0.1},
    ),
}  # fmt: skip
YES = "yes"
OTHER = "computes something else than this policy"
"""Where it starts, and not all weights reach it."""
DRAWN_BY_VLLM = {
    **dict.fromkeys(
        ("falcon_h1", "gemma", "gemma3_text", "llama", "mistral", "phi3", "qwen2", "qwen3"),
        (YES, 1e-4),
    ),
    "gemma2": (YES, 5e-3),
    "mixtral": ("refused", OTHER),
    "gpt_oss": ("refused", OTHER),
    # Narrow experts, which its kernel pads: what is written later has another shape.
    "qwen3_moe": ("refused", "cannot take this policy: The size of tensor"),
    "recurrent_gemma": ("refused", "cannot take this policy: Layer 0 does not dispatch"),
}
"""What vLLM's CPU build made of an architecture in float32, and the largest distance of a token's
log-probability from the trainer's in nats, or how it is refused; measured in the tests of engines
with heads of width 32, the narrowest that it knows."""
DOCUMENT = Path(__file__).parents[1] / "docs" / "architectures.md"
HEAD = (
    "| architecture | drawn by engine torch | by vLLM on a CPU | packing | LoRA adapts"
    " | router's loss |\n"
    "|---|---|---|---|---|---|\n"
)


def config_of(name):
    import transformers

    family, options = ARCHITECTURES[name]
    # Options are read, and some configurations write to those that they are given.
    return getattr(transformers, f"{family}Config")(**copy.deepcopy(options))


def model_of(name, **changes):
    """Random, in evaluation mode."""
    import torch
    import transformers

    config = config_of(name)
    config.update(changes)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return transformers.AutoModelForCausalLM.from_config(config).eval()


def wide_model_of(name):
    """As `model_of`, with heads that vLLM's attention on a CPU knows."""
    options = config_of(name).get_text_config().to_dict()
    by_heads = {"hidden_size": 32 * options["num_attention_heads"]}
    return model_of(name, **({"head_dim": 32} if options.get("head_dim") else by_heads))


def row_of(name):
    """The row of the table, by what the product says of the model."""
    from posttrain.learning.models.adapters import attach_adapter
    from posttrain.learning.models.architectures import NOT_DRAWN
    from posttrain.learning.training.packing import check_packing
    from posttrain.learning.training.router_loss import RouterLoss

    model = model_of(name)
    packs = refusal(check_packing, model) is None
    mixture = any("experts" in key and p.ndim == 3 for key, p in model.named_parameters())
    unbalanced = refusal(RouterLoss.of, model, 0.1)
    balances = "if asked for" if unbalanced is None else "not trained" if mixture else ""
    attach_adapter(model, rank=1, alpha=1)
    adapted = [key for key, p in model.named_parameters() if p.requires_grad]
    of_experts = [key for key in adapted if re.search(r"\bexperts\b(?!\.\d)", key)]
    adapts = "all linear layers" + " but experts" * (mixture and not of_experts)
    if of_experts:
        adapts = "attention and experts"
    drawn = "no" if model.config.model_type in NOT_DRAWN else "yes"
    by_vllm, _ = DRAWN_BY_VLLM.get(name, ("", None))
    packing = "yes" if packs else "refused"
    return f"| {name} | {drawn} | {by_vllm} | {packing} | {adapts} | {balances} |\n"


def refusal(call, *arguments):
    """What a call refuses to do, as a sentence; None where it does it."""
    from posttrain.stage.errors import UserError

    try:
        call(*arguments)
    except UserError as error:
        return str(error)
    return None


def write():
    table = HEAD + "".join(map(row_of, ARCHITECTURES))
    text = DOCUMENT.read_text(encoding="utf-8")
    DOCUMENT.write_text(re.sub(r"\| architecture \|.*?\n(?!\|)", lambda _: table, text, flags=re.S))


if __name__ == "__main__":
    sys.exit(write())
