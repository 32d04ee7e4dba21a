"""A decoder for the Llama architecture: the module's own weights, only tensor code.

For a model of a million parameters, the Python of a general forward costs more than its matrix
products. Here a decode step is about twenty tensor operations per layer, and the samples of one
prompt share its keys and values: attention to the prompt is one product per prompt instead of one
per sample (Juravsky et al., "Hydragen", 2024).

Shape letters beyond the usual: `_R` rows being decoded (prompts x group), `_C` hidden size,
`_H` query heads, `_K` key-value heads, `_D` head size, `_S` prompt positions.
"""

import sys
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from posttrain.learning.models.fast_llama import is_plain_llama, is_watched
from posttrain.learning.rollouts.engines.compaction import move_to_front
from posttrain.learning.rollouts.engines.llama_weights import LlamaWeights, rotation_factors

LARGEST = 100_000_000
"""Parameters up to which copying some weights at every update costs less than it saves."""

_SMALLEST_PRODUCT = 400
"""Multiplications of one product of a batch: below this, torch takes a kernel much slower."""

IN_CACHE = 16 * 2**20
"""Bytes of keys and values that a CPU keeps at hand: of a larger batch, every step fetches all of
them from memory again."""

FEWEST = 128
"""Rows of a batch below which dispatch costs more than what a cache saves."""

_PORTION = 1024
"""Tokens of prompts that a CPU reads at once: of more, the activations leave its cache."""


class LayerCache:
    """Keys and values of the prompts, and of each row's own tokens.

    `own` is `[2, P, K, G, room, D]`, keys before values; `prompt_keys` is `[P, K, D, S]` and
    `prompt_values` `[P, K, S, D]`, of no positions where the rows' own hold the prompts too.
    """

    def __init__(self, own: Tensor, prompt_keys: Tensor, prompt_values: Tensor) -> None:
        self.own = own
        self.prompt_keys, self.prompt_values = prompt_keys, prompt_values
        self._look()

    def _look(self) -> None:
        keys, values = self.own.flatten(1, 3)
        self.keys_to, self.values = keys.transpose(1, 2), values
        """Own keys `[P * K * G, D, room]` and values `[P * K * G, room, D]`."""
        self.slots = torch.view_as_complex(self.own.view(*self.own.shape[:-1], -1, 2))
        """Where keys and values go, pairs as one number: `[2, P, K, G, room, D/2]`."""
        self.shared_keys = self.prompt_keys.flatten(0, 1)
        self.shared_values = self.prompt_values.flatten(0, 1)

    def keep(self, prompts_P: Tensor, *, used: int) -> None:
        """Go on with these prompts only.

        Args:
            prompts_P: Index of the prompt for each place in front.
            used: Positions of the rows' own tokens that are filled; those beyond are not moved.

        """
        for each in self.own:
            move_to_front(each[:, :, :, :used], prompts_P)
        self.own = self.own[:, : len(prompts_P)]
        self.prompt_keys = move_to_front(self.prompt_keys, prompts_P)
        self.prompt_values = move_to_front(self.prompt_values, prompts_P)
        self._look()


def can_decode(model: Any) -> bool:
    """True where `LlamaDecoder` computes what the model's own forward computes."""
    return bool(
        type(model).__name__ in ("LlamaForCausalLM", "Qwen2ForCausalLM")
        and is_plain_llama(model)
        and not is_watched(model)
        and model.num_parameters() <= LARGEST
    )


class LlamaDecoder:
    """Decodes with weights read from a transformers Llama or Qwen2 when this is made; no gradient.

    Qwen2 is a Llama with biases on queries, keys and values.
    """

    def __init__(self, model: Any) -> None:
        config = model.config
        self.heads: int = config.num_attention_heads
        self.kv_heads: int = config.num_key_value_heads
        self.head_size: int = model.model.layers[0].self_attn.head_dim
        multiplied = self.heads // self.kv_heads * self.head_size
        self.narrowest = -(-_SMALLEST_PRODUCT // multiplied)
        self.weights = LlamaWeights(model)
        self.rotary = model.model.rotary_emb

    def most_rows(self, num_positions: int) -> int:
        """Rows of so many positions that are worth decoding together, however many there are."""
        if self.weights.head.device.type != "cpu":
            return sys.maxsize
        numbers = 2 * len(self.weights.layers) * self.kv_heads * self.head_size * num_positions
        return max(FEWEST, IN_CACHE // (numbers * self.weights.head.element_size()))

    def prefill(self, ids_PS: Tensor, padding_P: Tensor, *, group: int, max_tokens: int) -> Tensor:
        """Read prompts, and make room for what is drawn after them.

        Args:
            ids_PS: Token ids, padded on the left.
            padding_P: How many of each row are padding.
            group: Rows to draw for each prompt.
            max_tokens: Most tokens of a row.

        Returns:
            Logits of what follows each prompt, ``[P, V]``.

        """
        num_prompts, length = ids_PS.shape
        # By the group alone: the bits of a sample must not depend on how many others there are.
        self.group = group
        self.read, self.written = (length, 0) if group > 1 else (0, length)
        num_positions = max(length + max_tokens, self.narrowest)
        self._prepare_turns(num_positions)
        # None where all rows are at the same position.
        self.padding_P = padding_P if bool(padding_P.any()) else None
        self._make_room(num_prompts, max_tokens)
        self.bias_P1S = None
        if self.padding_P is not None or 0 < self.written < self.narrowest:
            bias_P1S = self._bias(padding_P, length, num_positions)
            self.bias_P1S = bias_P1S.repeat_interleave(self.kv_heads, 0)
        portions = [slice(num_prompts)]
        if group == 1 and ids_PS.device.type == "cpu":
            portions = _portions(padding_P.tolist(), length)
        return torch.cat([self._read_prompts(ids_PS, padding_P, chosen) for chosen in portions])

    def _bias(self, padding_P: Tensor, length: int, num_positions: int) -> Tensor:
        """-inf at padding and, where a row has one cache, at what is to come; `[P, 1, S]`."""
        positions_S = torch.arange(num_positions, device=padding_P.device)
        hidden_PS = positions_S < padding_P[:, None]
        hidden_PS[:, length:] = True
        bias_PS = torch.zeros(hidden_PS.shape, device=padding_P.device)
        bias_PS.masked_fill_(hidden_PS, -torch.inf)
        return bias_PS[:, None, : length if self.group > 1 else num_positions]

    def _prepare_turns(self, num_positions: int) -> None:
        """What a key and a value are multiplied by at each position, `[S, 2, D/2]` complex.

        A value is not turned: its number is 1, so that both are written by one product.
        """
        keys = rotation_factors(self.rotary, num_positions)
        self.turns = torch.stack([keys, torch.ones_like(keys)], 1)

    def _make_room(self, num_prompts: int, max_tokens: int) -> None:
        """Caches of the prompts, and of each row's own tokens; one of both where none is shared."""
        heads, size = (num_prompts, self.kv_heads), self.head_size
        own = (2, *heads, self.group, max(self.written + max_tokens, self.narrowest), size)
        empty = self.weights.head.new_empty
        self.caches = [
            LayerCache(empty(own), empty(*heads, size, self.read), empty(*heads, self.read, size))
            for _ in self.weights.layers
        ]
        for cache in self.caches:
            # Positions that are read before they are written.
            cache.own[..., : max(self.written, self.narrowest), :] = 0.0
        self._lay_out(num_prompts)

    def _lay_out(self, num_prompts: int) -> None:
        """Where a step has its queries, keys and values, and views of these by head."""
        kv, group, size = self.kv_heads, self.group, self.head_size
        per_key = self.heads // kv
        width = (self.heads + 2 * kv) * size
        empty = self.weights.head.new_empty
        self.fused = empty(num_prompts * group, width)
        self.queries = empty(num_prompts, kv, group * per_key, size)
        pairs = torch.view_as_complex(self.fused.view(num_prompts, group, -1, size // 2, 2))
        queries, keys_values = pairs[:, :, : self.heads], pairs[:, :, self.heads :]
        self.new_queries = queries.view(num_prompts, group, kv, per_key, -1).transpose(1, 2)
        keys_values = keys_values.view(num_prompts, group, 2, kv, -1)
        self.new_keys_values = keys_values.permute(2, 0, 3, 1, 4)
        turned = self.queries.view(num_prompts, kv, group, per_key, -1, 2)
        self.turned_queries = torch.view_as_complex(turned)

    def _read_prompts(self, ids_PS: Tensor, padding_P: Tensor, chosen: slice) -> Tensor:
        """Fill the caches of some prompts; their logits."""
        # Only where prompts are read in portions do all of one share padding.
        begin = int(padding_P[chosen].min()) if self.group == 1 else 0
        ids_PS, padding_P = ids_PS[chosen, begin:], padding_P[chosen] - begin
        num_prompts, length = ids_PS.shape
        positions_S = torch.arange(length, device=ids_PS.device)
        turns_N = self.turns[(positions_S - padding_P[:, None]).clamp_min(0).flatten(), :1]
        bias_PST = _causal_bias(positions_S < padding_P[:, None])[:, None]
        x = self.weights.embedding[ids_PS].flatten(0, 1)
        turned, size = self.heads + self.kv_heads, self.head_size
        for index, (layer, cache) in enumerate(zip(self.weights.layers, self.caches, strict=True)):
            fused = self.weights.project(x, layer).view(len(x), -1, size)
            torch.view_as_complex(fused.view(len(x), -1, size // 2, 2))[:, :turned].mul_(turns_N)
            qkv = fused.view(num_prompts, length, -1, size).transpose(1, 2)
            q, k, v = torch.split(qkv, [self.heads, self.kv_heads, self.kv_heads], 1)
            if self.group > 1:
                cache.prompt_keys[:] = k.transpose(2, 3)
                cache.prompt_values[:] = v
            else:
                cache.own[:, chosen, :, 0, begin : begin + length] = torch.stack([k, v])
            if index == len(self.weights.layers) - 1 and self.group == 1:
                # What follows the prompt is read at its last position alone. Groups read a prompt
                # once for many samples: there it saves little, and another shape rounds otherwise.
                q, bias_PST = q[:, :, -1:], bias_PST[:, :, -1:]
                x = x.view(num_prompts, length, -1)[:, -1]
            y = F.scaled_dot_product_attention(
                q, k, v, attn_mask=bias_PST, scale=1.0, enable_gqa=True
            )
            x = self.weights.finish(x, y.transpose(1, 2).reshape(len(x), -1), layer)
        return self.weights.logits(x.view(num_prompts, -1, x.shape[-1])[:, -1])

    def step(self, tokens_R: Tensor) -> Tensor:
        """Append one token to every row; logits of what follows `[R, V]`."""
        x = self.weights.embedding.index_select(0, tokens_R)
        position = self.read + self.written
        if self.padding_P is None:
            turn = self.turns[position, :, None, None, None]
        else:
            turns_P = self.turns.index_select(0, position - self.padding_P)
            turn = turns_P.transpose(0, 1)[:, :, None, None]
        if self.bias_P1S is not None and self.group == 1:
            self.bias_P1S[:, :, self.written] = 0.0
        attend = self._attend if self.group > 1 else self._attend_alone
        for layer, cache in zip(self.weights.layers, self.caches, strict=True):
            self.weights.project(x, layer, out=self.fused)
            torch.mul(self.new_queries, turn[0, ..., None, :], out=self.turned_queries)
            torch.mul(self.new_keys_values, turn, out=cache.slots.select(4, self.written))
            x = self.weights.finish(x, attend(cache), layer)
        self.written += 1
        return self.weights.logits(x)

    def keep(self, prompts_P: Tensor) -> None:
        """Go on with the rows of these prompts only, indices into the present ones."""
        for cache in self.caches:
            cache.keep(prompts_P, used=max(self.written, self.narrowest))
        if self.bias_P1S is not None:
            by_prompt = self.bias_P1S.view(-1, self.kv_heads, *self.bias_P1S.shape[1:])
            self.bias_P1S = by_prompt[prompts_P].flatten(0, 1)
        if self.padding_P is not None:
            self.padding_P = self.padding_P[prompts_P]
        self._lay_out(len(prompts_P))

    def _attend(self, cache: LayerCache) -> Tensor:
        """One softmax over the shared prompt and the row's own tokens; `[R, H * D]`."""
        q, size, per_key = self.queries.flatten(0, 1), self.head_size, self.heads // self.kv_heads
        if self.bias_P1S is None:
            to_prompt = torch.bmm(q, cache.shared_keys)
        else:
            to_prompt = torch.baddbmm(self.bias_P1S, q, cache.shared_keys)
        seen, width = self.written + 1, max(self.written + 1, self.narrowest)
        to_own = torch.bmm(q.view(-1, per_key, size), cache.keys_to[:, :, :width])
        to_own = to_own.view(*q.shape[:2], width)
        if seen < width:
            to_own[..., seen:] = -torch.inf
        weights = torch.cat([to_prompt, to_own], -1).softmax(-1)
        y = torch.bmm(weights[..., : self.read], cache.shared_values)
        own_weights = weights[..., self.read :].reshape(-1, per_key, width)
        y.view(-1, per_key, size).baddbmm_(own_weights, cache.values[:, :width])
        y = y.view(-1, self.kv_heads, self.group, per_key * size).transpose(1, 2)
        return y.reshape(-1, self.heads * size)

    def _attend_alone(self, cache: LayerCache) -> Tensor:
        """As `_attend`, where a row's own positions hold the prompt: `[R, H * D]`."""
        width = max(self.written + 1, self.narrowest)
        q, keys = self.queries.flatten(0, 1), cache.keys_to[:, :, :width]
        if self.bias_P1S is None:
            scores = torch.bmm(q, keys)
        else:
            scores = torch.baddbmm(self.bias_P1S[:, :, :width], q, keys)
        y = torch.bmm(scores.softmax(-1), cache.values[:, :width])
        return y.view(-1, self.heads * self.head_size)


def _portions(padding: list[int], length: int) -> list[slice]:
    """Neighboring prompts to read at once, of no more than `_PORTION` tokens where one fits."""
    portions, begin, longest = [], 0, 0
    for end, padded in enumerate(padding):
        longest = max(longest, length - padded)
        if end > begin and longest * (end + 1 - begin) > _PORTION:
            portions.append(slice(begin, end))
            begin, longest = end, length - padded
    return [*portions, slice(begin, len(padding))]


def _causal_bias(hidden_PS: Tensor) -> Tensor:
    """`[P, S, S]`, 0 where a position may look and -inf where not.

    A padded position looks at itself alone: nothing reads it, but it must not become NaN.
    """
    length = hidden_PS.shape[1]
    here = torch.eye(length, dtype=torch.bool, device=hidden_PS.device)
    later = torch.ones_like(here).triu(1)
    blocked = later | (hidden_PS[:, None] & ~here)
    return torch.zeros(blocked.shape, device=hidden_PS.device).masked_fill_(blocked, -torch.inf)
