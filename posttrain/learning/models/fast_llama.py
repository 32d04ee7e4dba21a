"""A faster forward pass of Llamas and Qwen2s on a CPU, for training.

The model's own modules over the tokens that have to be computed: a prefix that rows share (the
prompt of a group of rollouts, or of a pair) goes through the layers once and padding not at all,
and the last layer goes on only where a state is wanted. All of it is exact.

Shape letters beyond the usual: `_N` tokens that are computed, `_W` wanted ones, `_C` hidden size,
`_D` head size.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

_TILE = 16
"""Rows are as long as a multiple of this for attention: torch's kernel takes 1.5 times as long for
63 tokens as for 64."""

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

_checkpoint = partial(checkpoint, use_reentrant=False, preserve_rng_state=False)


@dataclass(frozen=True)
class RowLayout:
    """Attention works on rows ``[B, T]``, everything else on the tokens that are computed.

    Equal prefixes of rows are computed once, and padding not at all.
    """

    ids_N: Tensor
    """The tokens that are computed."""
    position_N: Tensor
    """Position of each in its row."""
    source_BT: Tensor
    """Which computed token stands where in the rows; past a row's end any."""
    place_N: Tensor
    """Place of each computed token's output in the flattened rows."""
    wanted_W: Tensor
    """The computed tokens whose last state is wanted, row by row."""
    wanted_place_W: Tensor
    """Places of their outputs in the flattened rows."""

    def in_rows(self, values_NF: Tensor) -> Tensor:
        """Computed tokens where they stand: ``[B, T, F]``."""
        return values_NF.index_select(0, self.source_BT.flatten()).view(*self.source_BT.shape, -1)


def lay_out(input_ids_BT: Tensor, wanted_BT: Tensor, starts_B: Tensor) -> RowLayout:
    """Choose what is computed of rows padded on the right.

    Args:
        input_ids_BT: Token ids.
        wanted_BT: True where a last state is wanted; what comes after a row's last is left out.
        starts_B: Rows that are equal up to here share what is computed of it.

    Returns:
        The computed tokens and their places.

    """
    num_rows, length = wanted_BT.shape
    positions_T = torch.arange(length)
    # A row that wants no state keeps a token, as attention is to be finite.
    ends_B = (wanted_BT * (positions_T + 1)).amax(-1).clamp_min(1)
    length = int(ends_B.max())
    ids_BT, wanted_BT = input_ids_BT[:, :length], wanted_BT[:, :length]
    positions_BT = positions_T[:length].expand(num_rows, -1)
    starts_B = torch.minimum(starts_B, ends_B)
    owners_B = _owners(ids_BT, starts_B)
    owned_BT = (owners_B == torch.arange(num_rows))[:, None] | (positions_BT >= starts_B[:, None])
    computed_BT = (positions_BT < ends_B[:, None]) & owned_BT
    source_BT = (computed_BT.flatten().cumsum(0) - 1).view(num_rows, length).clamp_min_(0)
    source_BT = torch.where(owned_BT, source_BT, source_BT[owners_B])
    padding = (0, -length % _TILE)
    return RowLayout(
        ids_N=ids_BT[computed_BT],
        position_N=positions_BT[computed_BT],
        source_BT=F.pad(source_BT, padding),
        place_N=_places(F.pad(computed_BT, padding)),
        wanted_W=source_BT[wanted_BT],
        wanted_place_W=_places(F.pad(wanted_BT, padding)),
    )


def _places(chosen_BT: Tensor) -> Tensor:
    return chosen_BT.flatten().nonzero()[:, 0]


def _owners(ids_BT: Tensor, starts_B: Tensor) -> Tensor:
    """The first row with the same prefix, for every row ``[B]``."""
    first: dict[tuple[int, ...], int] = {}
    rows = enumerate(zip(ids_BT.tolist(), starts_B.tolist(), strict=True))
    owners = [first.setdefault(tuple(ids[:start]), row) for row, (ids, start) in rows]
    return torch.tensor(owners)


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
        and model.config._attn_implementation in ("sdpa", "by_document")
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
        and getattr(config, "is_causal", True)
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
