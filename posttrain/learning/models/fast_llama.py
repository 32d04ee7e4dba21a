"""A faster forward pass of Llamas and Qwen2s on a CPU, for training.

The model's own modules over the tokens that have to be computed: a prefix that rows share (the
prompt of a group of rollouts, or of a pair) goes through the layers once and padding not at all,
and the last layer goes on only where a state is wanted. All of it is exact.

Shape letters beyond the usual: `_N` tokens that are computed, `_W` wanted ones, `_C` hidden size,
`_D` head size.
"""

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from posttrain.learning.models.row_layout import RowLayout, lay_out

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


def is_fast_llama(model: Any) -> bool:
    """Tell whether `fast_hidden_states` computes what the model's own forward computes.

    Args:
        model: A transformers model, in training or in evaluation mode.

    Returns:
        True for a plain Llama on a CPU. False too where somebody watches a module of the model,
        which would then see other shapes, or not be called.

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


def fast_hidden_states(
    model: Any, input_ids_BT: Tensor, *, wanted_BT: Tensor, starts_B: Tensor
) -> Tensor:
    """Compute the last hidden states, normed, at the wanted positions of right-padded rows.

    Differentiable. Equal rows up to `starts_B`, where completions begin, are computed once.
    Activation checkpointing, where it is on, keeps what goes into each layer.

    Args:
        model: One for which `is_fast_llama` holds.
        input_ids_BT: Token ids, padded on the right.
        wanted_BT: True where a state is wanted.
        starts_B: Position at which each row's completion begins.

    Returns:
        States ``[W, C]`` in row-major order, as ``hidden_states(...)[wanted_BT]``.

    """
    base, layout = model.base_model, lay_out(input_ids_BT, wanted_BT, starts_B)
    x_NC = base.embed_tokens(layout.ids_N)
    cos_1ND, sin_1ND = base.rotary_emb(x_NC, layout.position_N[None])
    keep = not (base.gradient_checkpointing and model.training)
    for layer in base.layers:
        given = x_NC, layer, (cos_1ND[0], sin_1ND[0]), layout, layer is base.layers[-1]
        x_NC = _pass_layer(*given) if keep else _checkpoint(_pass_layer, *given)
    states_WC: Tensor = base.norm(x_NC)
    return states_WC


def _pass_layer(
    x_NC: Tensor, layer: Any, rotation: tuple[Tensor, Tensor], layout: RowLayout, last: bool
) -> Tensor:
    """One layer; the last one goes on at the wanted tokens alone, ``[W, C]``."""
    y_RF = _attend(layer.input_layernorm(x_NC), layer.self_attn, rotation, layout)
    if last:
        x_NC = x_NC.index_select(0, layout.wanted_W)
    y_NF = y_RF.index_select(0, layout.wanted_place_W if last else layout.place_N)
    x_NC = x_NC + layer.self_attn.o_proj(y_NF)
    output_NC: Tensor = x_NC + layer.mlp(layer.post_attention_layernorm(x_NC))
    return output_NC


def _attend(
    x_NC: Tensor, attention: Any, rotation: tuple[Tensor, Tensor], layout: RowLayout
) -> Tensor:
    """Causal attention within each row, before the output projection: ``[B * T, heads * D]``."""
    size = attention.head_dim
    q, k, v = (p(x_NC) for p in (attention.q_proj, attention.k_proj, attention.v_proj))
    rows = (layout.in_rows(each) for each in (_rotate(q, rotation), _rotate(k, rotation), v))
    q, k, v = (each.view(*each.shape[:2], -1, size).transpose(1, 2) for each in rows)
    grouped = q.shape[1] != k.shape[1]
    y = F.scaled_dot_product_attention(
        q, k, v, scale=attention.scaling, is_causal=True, enable_gqa=grouped
    )
    return y.transpose(1, 2).flatten(2).flatten(0, 1)


def _rotate(heads_NF: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    """Rotary positions (arXiv 2104.09864): dimension i of a head turns with i + D/2."""
    cos_ND, sin_ND = rotation
    heads = heads_NF.view(len(heads_NF), -1, cos_ND.shape[-1])
    first, second = heads.chunk(2, -1)
    turned = torch.cat([-second, first], -1)
    return (heads * cos_ND[:, None] + turned * sin_ND[:, None]).flatten(1)


_checkpoint = partial(checkpoint, use_reentrant=False, preserve_rng_state=False)
