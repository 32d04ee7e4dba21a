"""Decode through a transformers model's own forward, with a cache that is allocated once."""

import inspect
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from posttrain.sampling.compaction import move_to_front


class CachedDecoder:
    """Works for any causal language model whose attention reads keys and values from a cache."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.num_layers = model.config.get_text_config().num_hidden_layers
        self.last_position = model.config.get_text_config().max_position_embeddings - 1
        self.takes_positions = "position_ids" in inspect.signature(model.forward).parameters

    def prefill(self, ids_PS: Tensor, padding_P: Tensor, *, group: int, max_tokens: int) -> Tensor:
        """Read prompts padded on the left by `padding_P`; logits of what follows them `[P, V]`."""
        _, length = ids_PS.shape
        self.group, self.length = group, length
        self.layers = [_Layer() for _ in range(self.num_layers)]
        self.cache = Cache(layers=self.layers)
        positions_S = torch.arange(length + max_tokens, device=ids_PS.device)
        self.padding_R = padding_P
        self.visible_RT = (positions_S >= padding_P[:, None]).long()
        logits_PV = self._forward(ids_PS)
        for layer in self.layers:
            layer.expand(group, max_tokens)
        self.padding_R = padding_P.repeat_interleave(group)
        self.visible_RT = self.visible_RT.repeat_interleave(group, 0)
        return logits_PV

    def step(self, tokens_R: Tensor) -> Tensor:
        """Append one token to every row; logits of what follows `[R, V]`."""
        return self._forward(tokens_R[:, None])

    def keep(self, prompts_P: Tensor) -> None:
        """Go on with the rows of these prompts only, indices into the present ones."""
        members = torch.arange(self.group, device=prompts_P.device)
        rows_R = (prompts_P[:, None] * self.group + members).flatten()
        for layer in self.layers:
            layer.keep(rows_R)
        self.padding_R, self.visible_RT = self.padding_R[rows_R], self.visible_RT[rows_R]

    def _forward(self, ids_RT: Tensor) -> Tensor:
        begin = self.cache.get_seq_length()
        end = begin + ids_RT.shape[1]
        options: dict[str, Any] = {"attention_mask": self.visible_RT[:, :end]}
        if self.takes_positions:
            positions_T = torch.arange(begin, end, device=ids_RT.device)
            positions_RT = positions_T - self.padding_R[:, None]
            options["position_ids"] = positions_RT.clamp(0, self.last_position)
        output = self.model(
            input_ids=ids_RT,
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=1,
            **options,
        )
        logits_RV: Tensor = output.logits[:, -1]
        return logits_RV


class _Layer(CacheLayerMixin):  # type: ignore[misc]
    """Keys and values of one layer `[R, K, T, D]` in a buffer that does not grow by copying.

    Sliding windows need nothing here: transformers masks what is out of the window.
    """

    is_sliding = False

    def __init__(self) -> None:
        super().__init__()
        self.used = 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Take the prompt's own tensors; room is made once the number of rows is known."""
        self.keys, self.values = key_states, value_states
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *_args: Any, **_options: Any
    ) -> tuple[Tensor, Tensor]:
        """Append, and return all that there is."""
        begin, self.used = self.used, self.used + key_states.shape[2]
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        else:
            self.keys[:, :, begin : self.used] = key_states
            self.values[:, :, begin : self.used] = value_states
        return self.keys[:, :, : self.used], self.values[:, :, : self.used]

    def expand(self, group: int, max_tokens: int) -> None:
        """Give every prompt `group` rows, with room for `max_tokens` more positions."""
        self.keys = _with_room(self.keys, group, max_tokens)
        self.values = _with_room(self.values, group, max_tokens)

    def keep(self, rows_R: Tensor) -> None:
        """Move the chosen rows to the front; the memory stays."""
        self.keys = _to_front(self.keys, rows_R, self.used)
        self.values = _to_front(self.values, rows_R, self.used)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Length and offset of the mask over keys."""
        return self.used + query_length, 0

    def get_seq_length(self) -> int:
        """Positions that are filled."""
        return self.used

    def get_max_length(self) -> int:
        """No limit of its own."""
        return -1


def _with_room(prompt: Tensor, group: int, max_tokens: int) -> Tensor:
    rows, heads, length, size = prompt.shape
    buffer = prompt.new_empty(rows * group, heads, length + max_tokens, size)
    buffer[:, :, :length] = prompt.repeat_interleave(group, 0)
    return buffer


def _to_front(buffer: Tensor, rows_R: Tensor, used: int) -> Tensor:
    move_to_front(buffer[:, :, :used], rows_R)
    return buffer[: len(rows_R)]
