"""Which models a lean pass computes as their own forward does."""

from typing import Any

import torch

_PARTS = ["ForCausalLM", "ForSequenceClassification", "Model", "DecoderLayer", "Attention"]
_PARTS += ["MLP", "RMSNorm", "RotaryEmbedding"]
# An adapter, a quantized layer or a sharded module brings modules of other names.
_KNOWN = {f"{family}{part}" for family in ("Llama", "Qwen2") for part in _PARTS} | {
    "Embedding",
    "Linear",
    "ModuleList",
    "SiLUActivation",
    "SiLU",
}


def is_lean(model: Any) -> bool:
    """Tell whether `lean_hidden_states` computes what the model's own forward computes.

    Args:
        model: A transformers model, in training or in evaluation mode.

    Returns:
        True for a plain Llama on a CPU. False too where somebody watches a module of the model,
        which would then not be called.

    """
    return bool(
        is_plain_llama(model)
        and model.device.type == "cpu"
        and not torch.is_autocast_enabled("cpu")
        and not is_watched(model)
        and model.config._attn_implementation == "sdpa"
        and not (model.config.attention_dropout and model.training)
    )


def is_plain_llama(model: Any) -> bool:
    """True for Llamas and Qwen2s in float32, of the modules and the options that we compute."""
    base, config = model.base_model, model.config
    return bool(
        type(base).__name__ in ("LlamaModel", "Qwen2Model")
        and base.dtype == torch.float32
        and all(type(module).__name__ in _KNOWN for module in model.modules())
        and config.hidden_act == "silu"
        and _biases(base.layers[0]) in ([], ["q_proj", "k_proj", "v_proj"])
        # Not to_dict, which copies the whole config.
        and "sliding_attention" not in (vars(config).get("layer_types") or ())
        and config.rope_parameters["rope_type"] in ("default", "linear", "llama3")
    )


def is_watched(model: Any) -> bool:
    """True where a module is compiled, or hooked though we do not call it."""
    return any(_is_watched(module) for module in model.modules())


def _is_watched(module: Any) -> bool:
    hooks = (
        module._forward_hooks,
        module._forward_pre_hooks,
        module._backward_hooks,
        module._backward_pre_hooks,
    )
    # Activation checkpointing hooks the embedding, which is called.
    hooked = any(hooks) and type(module).__name__ != "Embedding"
    return hooked or module._compiled_call_impl is not None


def _biases(layer: Any) -> list[str]:
    """Names of the modules of a layer that add a bias."""
    return [name.split(".")[-2] for name, _ in layer.named_parameters() if name.endswith(".bias")]
