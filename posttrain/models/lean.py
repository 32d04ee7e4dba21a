"""A lean forward pass of Llamas and Qwen2s on a CPU, for training: nothing is computed twice.

A prefix that rows share (the prompt of a group of rollouts, or of a pair) goes through the layers
once, padding not at all, and what follows the attention of the last layer is computed only where a
hidden state is wanted: for a reward head at one position a row. All of it is exact. Norms, rotation
and the gated MLP have their backward passes written out; queries, keys and values are one product,
gate and up another.

Shape letters beyond the usual: `_N` tokens that are computed, `_W` wanted ones, `_C` hidden size,
`_H` query heads, `_K` key-value heads, `_D` head size.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

_PARTS = ["ForCausalLM", "ForSequenceClassification", "Model", "DecoderLayer", "Attention"]
_PARTS += ["MLP", "RMSNorm", "RotaryEmbedding"]
# An adapter, a quantised layer or a sharded module brings modules of other names.
_KNOWN = {f"{family}{part}" for family in ("Llama", "Qwen2") for part in _PARTS} | {
    "Embedding",
    "Linear",
    "ModuleList",
    "SiLUActivation",
    "SiLU",
}


def is_lean(model: Any) -> bool:
    """True where `lean_hidden_states` computes what the model's own forward computes.

    False too where somebody watches a module of the model, which would then not be called.
    """
    base, config = model.base_model, model.config
    return bool(
        type(base).__name__ in ("LlamaModel", "Qwen2Model")
        and base.device.type == "cpu"
        and base.dtype == torch.float32
        and not torch.is_autocast_enabled("cpu")
        and all(_is_plain(module) for module in model.modules())
        and config.hidden_act == "silu"
        and config._attn_implementation == "sdpa"
        and not (config.attention_dropout and model.training)
        and _biases(base.layers[0]) in ([], ["q_proj", "k_proj", "v_proj"])
        and "sliding_attention" not in (config.to_dict().get("layer_types") or ())
        and config.rope_parameters["rope_type"] in ("default", "linear", "llama3")
    )


def _is_plain(module: Any) -> bool:
    """A module of a known kind that is not compiled, and not hooked unless it is called anyway."""
    hooks = (
        module._forward_hooks,
        module._forward_pre_hooks,
        module._backward_hooks,
        module._backward_pre_hooks,
    )
    # Activation checkpointing hooks the embedding.
    return bool(
        type(module).__name__ in _KNOWN
        and (type(module).__name__ == "Embedding" or not any(hooks))
        and module._compiled_call_impl is None
    )


def _biases(layer: Any) -> list[str]:
    """Names of the modules of a layer that add a bias."""
    return [name.split(".")[-2] for name, _ in layer.named_parameters() if name.endswith(".bias")]


def lean_hidden_states(
    model: Any, input_ids_BT: Tensor, *, wanted_BT: Tensor, starts_B: Tensor
) -> Tensor:
    """Last hidden states, normed, at the wanted positions of right-padded rows: ``[W, C]``.

    In row-major order, as ``hidden_states(...)[wanted_BT]``; differentiable. Equal rows up to
    `starts_B`, where completions begin, are computed once. Activation checkpointing, where it is
    on, keeps what goes into each layer. The model must be one that `is_lean` knows.
    """
    base, layout = model.base_model, _lay_out(input_ids_BT, wanted_BT, starts_B)
    rotation = _rotation(base.rotary_emb, layout.length)[layout.position_N]
    x_NC = base.embed_tokens(layout.ids_N)
    keep = not (base.gradient_checkpointing and model.training)
    for layer in base.layers:
        given = x_NC, layer, rotation, layout, layer is base.layers[-1]
        x_NC = _through(*given) if keep else _checkpoint(_through, *given)
    return _norm(x_NC, base.norm.weight, base.norm.variance_epsilon)


def _through(x_NC: Tensor, layer: Any, rotation: Tensor, layout: "_Layout", last: bool) -> Tensor:
    """One layer; the last one goes on with the wanted tokens alone."""
    attention, eps = layer.self_attn, layer.input_layernorm.variance_epsilon
    normed = _norm(x_NC, layer.input_layernorm.weight, eps)
    y_BTC = _attend(normed, attention, rotation, layout)
    if last:
        # Rows of a group want the same last state of their prompt: gradients must add in order.
        x_NC = x_NC.index_select(0, layout.wanted_W)
        y_NC = y_BTC.index_select(0, layout.wanted_in_rows_W)
    else:
        y_NC = y_BTC if layout.rows_N is None else y_BTC.index_select(0, layout.rows_N)
    x_NC = torch.addmm(x_NC, y_NC, attention.o_proj.weight.t())
    normed = _norm(x_NC, layer.post_attention_layernorm.weight, eps)
    wide = torch.cat([layer.mlp.gate_proj.weight, layer.mlp.up_proj.weight])
    return torch.addmm(x_NC, _gate(_linear(normed, wide, None)), layer.mlp.down_proj.weight.t())


@dataclass(frozen=True)
class _Layout:
    """Which tokens are computed, and where each stands in the rows that attention sees.

    Attention works on rows ``[B, T]`` as they were given: `places_BT` says which computed token
    stands where, `rows_N` at which place of the flattened rows the output for a computed token is.
    Both are None where rows share nothing and have no padding.
    """

    ids_N: Tensor
    position_N: Tensor
    num_rows: int
    length: int
    places_BT: Tensor | None
    rows_N: Tensor | None
    wanted_W: Tensor
    wanted_in_rows_W: Tensor


def _lay_out(input_ids_BT: Tensor, wanted_BT: Tensor, starts_B: Tensor) -> _Layout:
    num_rows, length = wanted_BT.shape
    positions_T = torch.arange(length)
    # What comes after the last wanted state is seen by nobody. A row that wants none keeps a token.
    ends_B = (wanted_BT * (positions_T + 1)).amax(-1).clamp_min(1)
    length = int(ends_B.max())
    ids_BT, wanted_BT = input_ids_BT[:, :length], wanted_BT[:, :length]
    wanted_in_rows_W = wanted_BT.flatten().nonzero()[:, 0]
    positions_BT = positions_T[:length].expand(num_rows, -1)
    owners_B, shared = _owners(ids_BT, torch.minimum(starts_B, ends_B))
    computed_BT = positions_BT < ends_B[:, None]
    if shared:
        first_B = owners_B == torch.arange(num_rows)
        computed_BT &= first_B[:, None] | (positions_BT >= starts_B[:, None])
    rows_N = computed_BT.flatten().nonzero()[:, 0]
    if len(rows_N) == num_rows * length:
        flat, here = ids_BT.flatten(), positions_BT.flatten()
        return _Layout(flat, here, num_rows, length, None, None, wanted_in_rows_W, wanted_in_rows_W)
    places_BT = (computed_BT.flatten().cumsum(0) - 1).view(num_rows, length).clamp_min_(0)
    if shared:
        places_BT = torch.where(positions_BT < starts_B[:, None], places_BT[owners_B], places_BT)
    return _Layout(
        ids_N=ids_BT.flatten()[rows_N],
        position_N=positions_BT.flatten()[rows_N],
        num_rows=num_rows,
        length=length,
        places_BT=places_BT.flatten(),
        rows_N=rows_N,
        wanted_W=places_BT.flatten()[wanted_in_rows_W],
        wanted_in_rows_W=wanted_in_rows_W,
    )


def _owners(ids_BT: Tensor, starts_B: Tensor) -> tuple[Tensor, bool]:
    """The first row with the same prefix, for every row, and whether any is another row."""
    first: dict[tuple[int, ...], int] = {}
    owners: list[int] = []
    for row, (ids, start) in enumerate(zip(ids_BT.tolist(), starts_B.tolist(), strict=True)):
        owners.append(first.setdefault(tuple(ids[:start]), row))
    return torch.tensor(owners), len(first) < len(owners)


def _rotation(rotary: Any, length: int) -> Tensor:
    """``scale * exp(i * position * frequency)``, ``[T, 1, D/2]`` complex."""
    positions_T = torch.arange(length, device=rotary.inv_freq.device)
    angles = positions_T[:, None].float() * rotary.inv_freq
    return torch.polar(torch.full_like(angles, rotary.attention_scaling), angles)[:, None]


def _attend(normed_NC: Tensor, attention: Any, rotation: Tensor, layout: _Layout) -> Tensor:
    """Causal attention within each row, before the output projection: ``[B * T, H * D]``."""
    size = attention.head_dim
    projections = attention.q_proj, attention.k_proj, attention.v_proj
    fused = _linear(
        normed_NC,
        _joined([projection.weight for projection in projections], size),
        None
        if attention.q_proj.bias is None
        else _joined([projection.bias[:, None] for projection in projections], size)[:, 0],
    )
    heads, kv_heads = (p.out_features // size for p in projections[:2])
    qkv = _rotate(fused.view(len(fused), -1, size // 2, 2), rotation, heads + kv_heads)
    if layout.places_BT is not None:
        qkv = qkv.index_select(0, layout.places_BT)
    rows = qkv.view(layout.num_rows, layout.length, -1, size).transpose(1, 2)
    q, k, v = torch.split(rows, [heads, kv_heads, kv_heads], 1)
    y = F.scaled_dot_product_attention(
        q, k, v, is_causal=True, scale=attention.scaling, enable_gqa=heads != kv_heads
    )
    return y.transpose(1, 2).reshape(layout.num_rows * layout.length, -1)


def _joined(qkv: list[Tensor], size: int) -> Tensor:
    """One matrix for q, k and v, in which the dimensions of q and k that turn together adjoin.

    Llama pairs dimension i with i + D/2. With a pair adjacent, the rotation is one complex
    product, and q.k does not change when both are permuted alike.
    """
    qk = torch.cat(qkv[:2])
    halves = qk.view(len(qk) // size, 2, size // 2, -1)
    return torch.cat([halves.transpose(1, 2).reshape_as(qk), qkv[2]])


class _Linear(torch.autograd.Function):
    """``x W^T + b``, whose weight's gradient is the product that is quicker on a CPU."""

    @staticmethod
    def forward(ctx: Any, x_NI: Tensor, weight_OI: Tensor, bias_O: Tensor | None) -> Tensor:
        ctx.save_for_backward(x_NI, weight_OI)
        ctx.biased = bias_O is not None
        return F.linear(x_NI, weight_OI, bias_O)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_NO: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        x_NI, weight_OI = ctx.saved_tensors
        if len(weight_OI) > weight_OI.shape[1]:
            to_weight = (x_NI.t() @ gradient_NO).t()
        else:
            to_weight = gradient_NO.t() @ x_NI
        return gradient_NO @ weight_OI, to_weight, gradient_NO.sum(0) if ctx.biased else None


class _Norm(torch.autograd.Function):
    """``x / sqrt(mean(x^2) + eps) * weight`` over the last dimension."""

    @staticmethod
    def forward(ctx: Any, x_NC: Tensor, weight_C: Tensor, eps: float) -> Tensor:
        squares_N1 = torch.linalg.vector_norm(x_NC, dim=-1, keepdim=True).square_()
        inverse_N1 = squares_N1.div_(x_NC.shape[1]).add_(eps).rsqrt_()
        unit_NC: Tensor = x_NC * inverse_N1
        ctx.save_for_backward(unit_NC, weight_C, inverse_N1)
        return unit_NC * weight_C

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_NC: Tensor) -> tuple[Tensor, Tensor, None]:
        unit_NC, weight_C, inverse_N1 = ctx.saved_tensors
        product_NC = gradient_NC * unit_NC
        along_N1 = torch.mv(product_NC, weight_C)[:, None] / len(weight_C)
        to_x = (gradient_NC * weight_C).addcmul_(unit_NC, along_N1, value=-1).mul_(inverse_N1)
        return to_x, product_NC.sum(0), None


class _Rotate(torch.autograd.Function):
    """Rotary positions: each adjacent pair of the first heads turns by its angle.

    ``[N, H + 2 K, D/2, 2]`` to ``[N, (H + 2 K) * D]``; the values, which come last, stay.
    """

    @staticmethod
    def forward(ctx: Any, pairs: Tensor, rotation: Tensor, num_turned: int) -> Tensor:
        ctx.rotation, ctx.num_turned = rotation, num_turned
        return _turned(pairs, rotation, num_turned).flatten(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        back = ctx.rotation.conj().resolve_conj()
        pairs = gradient.reshape(len(gradient), -1, back.shape[-1], 2)
        return _turned(pairs, back, ctx.num_turned), None, None


def _turned(pairs: Tensor, rotation: Tensor, num_turned: int) -> Tensor:
    result = torch.empty_like(pairs)
    source, target = torch.view_as_complex(pairs), torch.view_as_complex(result)
    torch.mul(source[:, :num_turned], rotation, out=target[:, :num_turned])
    target[:, num_turned:] = source[:, num_turned:]
    return result


class _Gate(torch.autograd.Function):
    """``silu(gate) * up`` of ``[N, 2I]``, gate beside up."""

    @staticmethod
    def forward(ctx: Any, both: Tensor) -> Tensor:
        ctx.save_for_backward(both)
        gate, up = both.chunk(2, -1)
        return F.silu(gate).mul_(up)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (both,) = ctx.saved_tensors
        gate, up = both.chunk(2, -1)
        result = torch.empty_like(both)
        to_gate, to_up = result.chunk(2, -1)
        torch.mul(gradient, F.silu(gate), out=to_up)
        to_gate.copy_(torch.ops.aten.silu_backward(gradient * up, gate))
        return result


_checkpoint = partial(checkpoint, use_reentrant=False, preserve_rng_state=False)
_linear: Callable[[Tensor, Tensor, Tensor | None], Tensor] = _Linear.apply
_norm: Callable[[Tensor, Tensor, float], Tensor] = _Norm.apply
_rotate: Callable[[Tensor, Tensor, int], Tensor] = _Rotate.apply
_gate: Callable[[Tensor], Tensor] = _Gate.apply
