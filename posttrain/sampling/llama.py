"""A lean decoder for the Llama architecture: the module's own weights, only tensor code.

For a model of a million parameters, the Python of a general forward costs more than its matrix
products. Here a decode step is about twenty tensor operations per layer, and the samples of one
prompt share its keys and values: attention to the prompt is one product per prompt instead of one
per sample (Juravsky et al., "Hydragen", 2024).

Shape letters beyond the usual: `_R` rows being decoded (prompts x group), `_C` hidden size,
`_H` query heads, `_K` key-value heads, `_D` head size, `_S` prompt positions.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from posttrain.sampling.compaction import move_to_front
from posttrain.sampling.memory import Memory

LARGEST = 100_000_000
"""Parameters up to which copying some weights at every update costs less than it saves."""

_NARROWEST = 25
"""Fewest own positions in a product: below this, torch takes a kernel three times as slow."""

_PORTION = 1024
"""Tokens of prompts that are read at once on a CPU."""

# An adapter or a quantised layer brings modules of other names.
_PARTS = ("ForCausalLM", "Model", "DecoderLayer", "Attention", "MLP", "RMSNorm", "RotaryEmbedding")
_KNOWN = {f"{family}{part}" for family in ("Llama", "Qwen2") for part in _PARTS} | {
    "Embedding",
    "Linear",
    "ModuleList",
    "SiLUActivation",
    "SiLU",
}


@dataclass(frozen=True)
class _Layer:
    """The weights of one decoder layer; `qkv` and its bias are scaled and permuted, see `_fuse`."""

    attention_norm: Tensor
    qkv: Tensor
    qkv_bias: Tensor | None
    out: Tensor
    mlp_norm: Tensor
    gate_up: Tensor
    down: Tensor


def is_lean(model: Any) -> bool:
    """True where `LlamaDecoder` computes what the model's own forward computes."""
    config = model.config
    return bool(
        type(model).__name__ in ("LlamaForCausalLM", "Qwen2ForCausalLM")
        and {type(module).__name__ for module in model.modules()} <= _KNOWN
        and config.hidden_act == "silu"
        and _biases(model) in (set(), {"q_proj", "k_proj", "v_proj"})
        and "sliding_attention" not in (config.to_dict().get("layer_types") or ())
        and config.rope_parameters["rope_type"] in ("default", "linear", "llama3")
        and model.dtype == torch.float32
        and model.num_parameters() <= LARGEST
    )


def _biases(model: Any) -> set[str]:
    """Names of the modules that add a bias."""
    return {name.split(".")[-2] for name, _ in model.named_parameters() if name.endswith(".bias")}


class LlamaDecoder:
    """Decodes with weights read from a transformers Llama or Qwen2 when this is made; no gradient.

    Qwen2 is a Llama with biases on queries, keys and values.
    """

    def __init__(self, model: Any, memory: Memory) -> None:
        config, self.memory = model.config, memory
        self.heads: int = config.num_attention_heads
        self.kv_heads: int = config.num_key_value_heads
        self.head_size: int = model.model.layers[0].self_attn.head_dim
        self.eps: float = config.rms_norm_eps
        self.embedding = model.model.embed_tokens.weight
        self.norm = model.model.norm.weight
        self.head = model.lm_head.weight
        self.layers = [self._read(layer) for layer in model.model.layers]
        self.rotary = model.model.rotary_emb

    def _read(self, layer: Any) -> _Layer:
        attention, mlp = layer.self_attn, layer.mlp
        projections = attention.q_proj, attention.k_proj, attention.v_proj
        biases = [projection.bias for projection in projections if projection.bias is not None]
        return _Layer(
            attention_norm=layer.input_layernorm.weight,
            qkv=self._fuse(*(projection.weight for projection in projections)),
            qkv_bias=self._fuse(*(bias[:, None] for bias in biases))[:, 0] if biases else None,
            out=attention.o_proj.weight,
            mlp_norm=layer.post_attention_layernorm.weight,
            gate_up=torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight]),
            down=mlp.down_proj.weight,
        )

    def _fuse(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """One matrix for q, k and v: q carries 1/sqrt(D), the rotated pairs of q and k adjoin.

        Llama pairs dimension i with i + D/2. With a pair adjacent, the rotation is one complex
        product, and q.k does not change when both are permuted alike.
        """
        qk = torch.cat([q * self.head_size**-0.5, k])
        halves = qk.view(self.heads + self.kv_heads, 2, self.head_size // 2, -1)
        return torch.cat([halves.transpose(1, 2).reshape_as(qk), v])

    def prefill(self, ids_PS: Tensor, padding_P: Tensor, *, group: int, max_tokens: int) -> Tensor:
        """Read prompts padded on the left by `padding_P`; logits of what follows them `[P, V]`.

        Makes room for `group` rows per prompt, each of up to `max_tokens` tokens.
        """
        num_prompts, length = ids_PS.shape
        positions_S = torch.arange(max(length + max_tokens, _NARROWEST), device=ids_PS.device)
        angles = positions_S[:, None].float() * self.rotary.inv_freq
        scale = torch.full_like(angles, self.rotary.attention_scaling)
        self.rotation = torch.polar(scale, angles)
        self.group, self.shared = group, group > 1
        self.written = 0 if self.shared else length
        self.position_R = (length - padding_P).repeat_interleave(group)
        self._make_room(num_prompts, length, max_tokens)
        hidden_PS = positions_S < padding_P[:, None]
        if self.shared:
            hidden_PS = hidden_PS[:, :length]
        else:
            hidden_PS[:, length:] = True
        bias_PS = torch.zeros(hidden_PS.shape, device=ids_PS.device)
        bias_PS = bias_PS.masked_fill_(hidden_PS, -torch.inf)
        self.bias_P1S = bias_PS.repeat_interleave(self.kv_heads, 0)[:, None]
        portions = [slice(num_prompts)]
        if not self.shared and ids_PS.device.type == "cpu":
            portions = _portions(padding_P.tolist(), length)
        read = [self._read_prompts(ids_PS, padding_P, chosen) for chosen in portions]
        return torch.cat(read)

    def _make_room(self, num_prompts: int, length: int, max_tokens: int) -> None:
        """Caches of the prompts, and of each row's own tokens; one of both where groups are 1."""
        keys_in = length if self.shared else 0
        shape = (num_prompts, self.kv_heads, self.head_size, keys_in)
        self.prompt_keys = self._buffers("prompt keys", shape, cleared=self.head_size)
        shape = (num_prompts, self.kv_heads, keys_in, self.head_size)
        self.prompt_values = self._buffers("prompt values", shape, cleared=keys_in)
        room = max(self.written + max_tokens, _NARROWEST)
        cleared = max(self.written, _NARROWEST)
        own = (num_prompts, self.kv_heads, self.group, room, self.head_size)
        self.own_keys = self._buffers("own keys", own, cleared=cleared)
        self.own_values = self._buffers("own values", own, cleared=cleared)

    def _buffers(self, name: str, shape: tuple[int, ...], *, cleared: int) -> list[Tensor]:
        """One buffer for each layer; positions that are read before they are written hold 0."""
        taken = []
        for index in range(len(self.layers)):
            buffer = self.memory.take(f"{name} {index}", shape, like=self.head)
            buffer[..., :cleared, :] = 0.0
            taken.append(buffer)
        return taken

    def _read_prompts(self, ids_PS: Tensor, padding_P: Tensor, chosen: slice) -> Tensor:
        """Fill the caches of some prompts, without the padding that they share; their logits."""
        begin = int(padding_P[chosen].min())
        ids_PS, padding_P = ids_PS[chosen, begin:], padding_P[chosen] - begin
        num_prompts, length = ids_PS.shape
        positions_S = torch.arange(length, device=ids_PS.device)
        rotation_PS = self.rotation[(positions_S - padding_P[:, None]).clamp_min(0)]
        bias_PST = _causal_bias(positions_S < padding_P[:, None])[:, None]
        x = self.embedding[ids_PS].flatten(0, 1)
        for index, layer in enumerate(self.layers):
            qkv = self._project(x, layer, rotation_PS.flatten(0, 1)[:, None])
            q, k, v = (t.view(num_prompts, length, *t.shape[1:]).transpose(1, 2) for t in qkv)
            if self.shared:
                self.prompt_keys[index][chosen, :, :, begin:] = k.transpose(2, 3)
                self.prompt_values[index][chosen, :, begin:] = v
            else:
                self.own_keys[index][chosen, :, 0, begin : begin + length] = k
                self.own_values[index][chosen, :, 0, begin : begin + length] = v
            if index == len(self.layers) - 1 and not self.shared:
                # What follows the prompt is read at its last position alone. Groups read a prompt
                # once for many samples: there it saves little, and another shape rounds otherwise.
                q, bias_PST = q[:, :, -1:], bias_PST[:, :, -1:]
                x = x.view(num_prompts, length, -1)[:, -1]
            y = F.scaled_dot_product_attention(
                q, k, v, attn_mask=bias_PST, scale=1.0, enable_gqa=True
            )
            x = self._finish(x, y.transpose(1, 2).reshape(len(x), -1), layer)
        return self._logits(x.view(num_prompts, -1, x.shape[-1])[:, -1])

    def step(self, tokens_R: Tensor) -> Tensor:
        """Append one token to every row; logits of what follows `[R, V]`."""
        x = self.embedding[tokens_R]
        rotation = self.rotation[self.position_R][:, None]
        if not self.shared:
            self.bias_P1S[:, :, self.written] = 0.0
        attend = self._attend if self.shared else self._attend_alone
        for index, layer in enumerate(self.layers):
            q, k, v = (self._by_head(t) for t in self._project(x, layer, rotation))
            self.own_keys[index][:, :, :, self.written] = k
            self.own_values[index][:, :, :, self.written] = v
            x = self._finish(x, attend(q, index), layer)
        self.written += 1
        self.position_R = self.position_R + 1
        return self._logits(x)

    def keep(self, prompts_P: Tensor) -> None:
        """Go on with the rows of these prompts only, indices into the present ones."""
        for caches in (self.prompt_keys, self.prompt_values):
            caches[:] = [move_to_front(cache, prompts_P) for cache in caches]
        used = max(self.written, _NARROWEST)
        for caches in (self.own_keys, self.own_values):
            for cache in caches:
                move_to_front(cache[:, :, :, :used], prompts_P)
            caches[:] = [cache[: len(prompts_P)] for cache in caches]
        self.bias_P1S = self._by_prompt(self.bias_P1S)[prompts_P].flatten(0, 1)
        self.position_R = self.position_R.view(-1, self.group)[prompts_P].flatten()

    def _by_prompt(self, bias_P1S: Tensor) -> Tensor:
        return bias_P1S.view(-1, self.kv_heads, *bias_P1S.shape[1:])

    def _project(
        self, x_RC: Tensor, layer: _Layer, rotation: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Rotated queries `[R, H, D]` and keys `[R, K, D]`, and values `[R, K, D]`."""
        heads, size = self.heads + self.kv_heads, self.head_size
        normed = F.rms_norm(x_RC, layer.attention_norm.shape, layer.attention_norm, self.eps)
        fused = F.linear(normed, layer.qkv, layer.qkv_bias)
        pairs = torch.view_as_complex(fused[:, : heads * size].view(-1, heads, size // 2, 2))
        qk = torch.view_as_real(pairs * rotation).flatten(2)
        values = fused[:, heads * size :].view(-1, self.kv_heads, size)
        return qk[:, : self.heads], qk[:, self.heads :], values

    def _by_head(self, rows_RHD: Tensor) -> Tensor:
        """View `[R, H, D]` as `[P, K, G, H/K * D]`: query heads beside the keys they share."""
        width = rows_RHD.shape[1] // self.kv_heads * self.head_size
        return rows_RHD.reshape(-1, self.group, self.kv_heads, width).transpose(1, 2)

    def _attend(self, q: Tensor, index: int) -> Tensor:
        """One softmax over the shared prompt and the row's own tokens; `[R, H * D]`."""
        num_prompts, kv, group, _ = q.shape
        per_key = self.heads // kv
        q = q.reshape(num_prompts * kv, group * per_key, self.head_size)
        to_prompt = torch.baddbmm(self.bias_P1S, q, self.prompt_keys[index].flatten(0, 1))
        seen, width = self.written + 1, max(self.written + 1, _NARROWEST)
        own_keys = self.own_keys[index].flatten(0, 2)[:, :width].transpose(1, 2)
        to_own = torch.bmm(q.reshape(-1, per_key, self.head_size), own_keys).view(
            *q.shape[:2], width
        )
        if seen < width:
            to_own[..., seen:] = -torch.inf
        weights = torch.cat([to_prompt, to_own], -1).softmax(-1)
        length = to_prompt.shape[-1]
        y = torch.bmm(weights[..., :length], self.prompt_values[index].flatten(0, 1))
        own_values = self.own_values[index].flatten(0, 2)[:, :width]
        own_weights = weights[..., length:].reshape(-1, per_key, width)
        y.view(-1, per_key, self.head_size).baddbmm_(own_weights, own_values)
        y = y.view(num_prompts, kv, group, -1).transpose(1, 2)
        return y.reshape(num_prompts * group, -1)

    def _attend_alone(self, q: Tensor, index: int) -> Tensor:
        """As `_attend`, where no two rows share a prompt: `[P, H * D]`."""
        width = max(self.written + 1, _NARROWEST)
        q = q.reshape(-1, self.heads // self.kv_heads, self.head_size)
        keys = self.own_keys[index].flatten(0, 2)[:, :width].transpose(1, 2)
        weights = torch.baddbmm(self.bias_P1S[:, :, :width], q, keys).softmax(-1)
        y = torch.bmm(weights, self.own_values[index].flatten(0, 2)[:, :width])
        return y.view(-1, self.heads * self.head_size)

    def _finish(self, x_RC: Tensor, attended: Tensor, layer: _Layer) -> Tensor:
        """The output projection and the gated MLP, each added to the residual stream."""
        x_RC = torch.addmm(x_RC, attended, layer.out.t())
        normed = F.rms_norm(x_RC, layer.mlp_norm.shape, layer.mlp_norm, self.eps)
        gate, up = F.linear(normed, layer.gate_up).chunk(2, -1)
        return torch.addmm(x_RC, F.silu(gate) * up, layer.down.t())

    def _logits(self, x_RC: Tensor) -> Tensor:
        return F.linear(F.rms_norm(x_RC, self.norm.shape, self.norm, self.eps), self.head)


def _portions(padding: list[int], length: int) -> list[slice]:
    """Neighbouring prompts to read at once: as many as keep the activations in the CPU's cache."""
    portions, begin = [], 0
    while begin < len(padding):
        end, longest = begin + 1, length - padding[begin]
        while end < len(padding):
            longest = max(longest, length - padding[end])
            if longest * (end + 1 - begin) > _PORTION:
                break
            end += 1
        portions.append(slice(begin, end))
        begin = end
    return portions


def _causal_bias(hidden_PS: Tensor) -> Tensor:
    """`[P, S, S]`, 0 where a position may look and -inf where not.

    A padded position looks at itself alone: nothing reads it, but it must not become NaN.
    """
    length = hidden_PS.shape[1]
    here = torch.eye(length, dtype=torch.bool, device=hidden_PS.device)
    later = torch.ones_like(here).triu(1)
    blocked = later | (hidden_PS[:, None] & ~here)
    return torch.zeros(blocked.shape, device=hidden_PS.device).masked_fill_(blocked, -torch.inf)
