"""Decode through a transformers model's own forward: rows come and go in one static cache."""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from posttrain.learning.models.memory import free_memory
from posttrain.learning.rollouts.engines.compaction import move_to_front
from posttrain.stage.errors import UserError
from posttrain.stage.formatting import bytesize


class SlotDecoder:
    """Rows in flight `_R`, for any causal language model that reads keys and values from a cache.

    All rows write to the same column of the cache. A row that is admitted later is put so that its
    prompt ends there, padded on the left; when the last column is met, what no row needs any more
    is shifted out. A prompt must not be longer than all those that are in flight. `forward` is the
    model itself, or what was compiled of it.
    """

    def __init__(
        self, model: Any, forward: Callable[..., Any], *, num_rows: int, num_columns: int
    ) -> None:
        self.forward = forward
        config = model.config.get_text_config()
        self.last_position = config.max_position_embeddings - 1
        self.takes_positions = "position_ids" in inspect.signature(model.forward).parameters
        self.num_rows, self.num_columns = num_rows, num_columns
        self.layers = [_Layer() for _ in range(config.num_hidden_layers)]
        self.cache = Cache(layers=self.layers)
        self.padding_R = torch.zeros(0, dtype=torch.long, device=model.device)

    def admit(self, ids_PS: Tensor, padding_P: Tensor, *, group: int) -> Tensor:
        """Read prompts; each has rows from then on, behind those that are there.

        Args:
            ids_PS: Token ids, padded on the left.
            padding_P: How many of each row are padding.
            group: Rows of each prompt, which is read once.

        Returns:
            Logits of what follows, ``[P * group, V]``.

        """
        begin, length = len(self.padding_R), ids_PS.shape[1]
        # Columns of padding cost attention as much as others: shift sooner than it must be.
        if begin and int(self.padding_R.min()) > self.num_columns // 8:
            self._shift()
        read = [_Layer() for _ in self.layers]
        logits_PV = self._forward(Cache(layers=read), ids_PS, padding_P)
        if not self.layers[0].is_initialized:
            self._check_memory(read)
        for layer, prompt in zip(self.layers, read, strict=True):
            if not layer.is_initialized:
                layer.make_room(prompt, self.num_rows, self.num_columns)
            if begin == 0:
                layer.used = length
            layer.place(prompt, group, begin=begin)
        here = self.layers[0].used - length
        self.padding_R = torch.cat([self.padding_R, (padding_P + here).repeat_interleave(group)])
        return logits_PV.repeat_interleave(group, 0)

    def step(self, tokens_R: Tensor) -> Tensor:
        """Append one token to every row; logits of what follows `[R, V]`."""
        if self.layers[0].used == self.num_columns:
            self._shift()
        return self._forward(self.cache, tokens_R[:, None], self.padding_R)

    def keep(self, rows_R: Tensor) -> None:
        """Go on with these rows only, indices into the present ones."""
        for layer in self.layers:
            layer.keep(rows_R)
        self.padding_R = self.padding_R[rows_R]

    def _shift(self) -> None:
        distance = int(self.padding_R.min())
        for layer in self.layers:
            layer.shift(distance, num_rows=len(self.padding_R))
        self.padding_R = self.padding_R - distance

    def _check_memory(self, read: list["_Layer"]) -> None:
        """Refuse slots that cannot be had, by what one position of one row takes."""
        position = sum(
            tensor.shape[1] * tensor.shape[3] * tensor.element_size()
            for layer in read
            for tensor in (layer.keys, layer.values)
        )
        needed = position * self.num_rows * self.num_columns
        free = free_memory(str(self.padding_R.device))
        if needed > free:
            raise UserError(
                f"keys and values of {self.num_rows} samples of up to {self.num_columns} tokens"
                f" take {bytesize(needed)}, but {bytesize(free)} are free on"
                f" {self.padding_R.device}; lower batch_size, or max_tokens"
            )

    def _forward(self, cache: Cache, ids_RT: Tensor, padding_R: Tensor) -> Tensor:
        begin = cache.get_seq_length()
        columns_T = torch.arange(begin + ids_RT.shape[1], device=ids_RT.device)
        options: dict[str, Any] = {"attention_mask": (columns_T >= padding_R[:, None]).long()}
        if self.takes_positions:
            positions_RT = columns_T[begin:] - padding_R[:, None]
            options["position_ids"] = positions_RT.clamp(0, self.last_position)
        output = self.forward(
            input_ids=ids_RT, past_key_values=cache, use_cache=True, logits_to_keep=1, **options
        )
        logits_RV: Tensor = output.logits[:, -1]
        return logits_RV


class _Layer(CacheLayerMixin):  # type: ignore[misc]
    """Keys and values of one layer `[R, K, T, D]`, the prompts' own or those of all slots.

    Sliding windows need nothing here: transformers masks what is out of the window.
    """

    is_sliding = False

    def __init__(self) -> None:
        super().__init__()
        self.used = 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Take these tensors as they are."""
        self.keys, self.values = key_states, value_states
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *_args: Any, **_options: Any
    ) -> tuple[Tensor, Tensor]:
        """Append to the first rows, and return all that these have."""
        num_rows, begin = len(key_states), self.used
        self.used += key_states.shape[2]
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        else:
            self.keys[:num_rows, :, begin : self.used] = key_states
            self.values[:num_rows, :, begin : self.used] = value_states
        return self.keys[:num_rows, :, : self.used], self.values[:num_rows, :, : self.used]

    def make_room(self, like: "_Layer", num_rows: int, num_columns: int) -> None:
        """Allocate all slots; cleared, as a weight of 0 does not rule out what is not a number."""
        self.lazy_initialization(
            *(
                tensor.new_zeros(num_rows, tensor.shape[1], num_columns, tensor.shape[3])
                for tensor in (like.keys, like.values)
            )
        )

    def place(self, prompt: "_Layer", group: int, *, begin: int) -> None:
        """Copy prompts, `group` times each, to the rows from `begin` on, up to the last column."""
        rows = slice(begin, begin + len(prompt.keys) * group)
        columns = slice(self.used - prompt.used, self.used)
        self.keys[rows, :, columns] = prompt.keys.repeat_interleave(group, 0)
        self.values[rows, :, columns] = prompt.values.repeat_interleave(group, 0)

    def keep(self, rows_R: Tensor) -> None:
        """Move the chosen rows to the front; the memory stays."""
        for buffer in (self.keys, self.values):
            move_to_front(buffer[:, :, : self.used], rows_R)

    def shift(self, distance: int, *, num_rows: int) -> None:
        """Move the first rows by so many columns to the left."""
        for buffer in (self.keys, self.values):
            moved = buffer[:num_rows, :, distance : self.used].clone()
            buffer[:num_rows, :, : self.used - distance] = moved
        self.used -= distance

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Length and offset of the mask over keys."""
        return self.used + query_length, 0

    def get_seq_length(self) -> int:
        """Positions that are filled."""
        return self.used

    def get_max_length(self) -> int:
        """No limit of its own."""
        return -1
