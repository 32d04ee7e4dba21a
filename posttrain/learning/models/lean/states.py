"""Through all layers: which tokens go on, and how they attend to each other."""

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from posttrain.learning.models.lean.layers import finish, normed, projected
from posttrain.learning.models.lean.layout import Layout, lay_out
from posttrain.learning.models.lean.rotation import turns


def lean_hidden_states(
    model: Any, input_ids_BT: Tensor, *, wanted_BT: Tensor, starts_B: Tensor
) -> Tensor:
    """Compute the last hidden states, normed, at the wanted positions of right-padded rows.

    Differentiable. Equal rows up to `starts_B`, where completions begin, are computed once.
    Activation checkpointing, where it is on, keeps what goes into each layer.

    Args:
        model: One that `is_lean` knows.
        input_ids_BT: Token ids, padded on the right.
        wanted_BT: True where a state is wanted.
        starts_B: Position at which each row's completion begins.

    Returns:
        States ``[W, C]`` in row-major order, as ``hidden_states(...)[wanted_BT]``.

    """
    base, layout = model.base_model, lay_out(input_ids_BT, wanted_BT, starts_B)
    rotation_N = turns(base.rotary_emb, layout.length)[layout.position_N, None]
    x_NC = base.embed_tokens(layout.ids_N)
    keep = not (base.gradient_checkpointing and model.training)
    for layer in base.layers:
        through = _through_last if layer is base.layers[-1] else _through
        given = x_NC, layer, rotation_N, layout
        x_NC = through(*given) if keep else _checkpoint(through, *given)
    return normed(x_NC, base.norm)


def _through(x_NC: Tensor, layer: Any, rotation_N: Tensor, layout: Layout) -> Tensor:
    """One layer."""
    y_BTF = _attended(x_NC, layer, rotation_N, layout)
    return finish(x_NC, layout.computed(y_BTF), layer)


def _through_last(x_NC: Tensor, layer: Any, rotation_N: Tensor, layout: Layout) -> Tensor:
    """The last layer, whose output is wanted at some tokens alone: ``[W, C]``."""
    # Rows of a group want the same last state of their prompt: gradients must add in order.
    x_WC = x_NC.index_select(0, layout.wanted_W)
    if layout.seen_B11T is None:
        y_BTF = _attended(x_NC, layer, rotation_N, layout)
        y_WF = y_BTF.flatten(0, 1).index_select(0, layout.wanted_in_rows_W)
    else:
        y_WF = _attended_once(x_NC, x_WC, layer, rotation_N, layout)
    return finish(x_WC, y_WF, layer)


def _attended(x_NC: Tensor, layer: Any, rotation_N: Tensor, layout: Layout) -> Tensor:
    """Causal attention within each row, before the output projection: ``[B, T, H * D]``."""
    attention = layer.self_attn
    projections = attention.q_proj, attention.k_proj, attention.v_proj
    qkv_NF = projected(x_NC, layer, projections, rotation_N)
    q, k, v = _by_head(layout.in_rows(qkv_NF), projections, attention.head_dim)
    y = _attention(q, k, v, scale=attention.scaling, is_causal=True)
    return y.transpose(1, 2).flatten(2)


def _attended_once(
    x_NC: Tensor, x_BC: Tensor, layer: Any, rotation_N: Tensor, layout: Layout
) -> Tensor:
    """As `_attended`, for rows of which one token each asks: ``[B, H * D]``."""
    attention, size = layer.self_attn, layer.self_attn.head_dim
    projections = attention.k_proj, attention.v_proj
    q_BF = projected(x_BC, layer, [attention.q_proj], rotation_N[layout.wanted_W])
    kv_NF = projected(x_NC, layer, projections, rotation_N)
    k, v = _by_head(layout.in_rows(kv_NF), projections, size)
    q = q_BF.view(len(q_BF), -1, 1, size)
    return _attention(q, k, v, scale=attention.scaling, attn_mask=layout.seen_B11T).flatten(1)


def _by_head(rows_BTF: Tensor, projections: Any, size: int) -> list[Tensor]:
    """The projections of rows as ``[B, heads, T, D]`` each."""
    parts = torch.split(rows_BTF, [each.out_features for each in projections], -1)
    return [part.view(*part.shape[:2], -1, size).transpose(1, 2) for part in parts]


def _attention(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
    grouped = q.shape[1] != k.shape[1]
    return F.scaled_dot_product_attention(q, k, v, enable_gqa=grouped, **options)


_checkpoint = partial(checkpoint, use_reentrant=False, preserve_rng_state=False)
