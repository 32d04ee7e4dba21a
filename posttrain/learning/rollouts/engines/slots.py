"""Decode through a transformers model's own forward: rows come and go in one static cache."""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from posttrain.learning.models.context import context_length
from posttrain.learning.models.memory import free_memory
from posttrain.learning.rollouts.engines.slot_layers import KeysAndValues, SlotLayer, layers_of
from posttrain.stage.errors import UserError
from posttrain.stage.formatting import bytesize


class SlotDecoder:
    """Rows in flight `_R`, for any causal language model with a cache that `slot_layers` knows.

    All rows write to the same column of the cache. A row that is admitted later is put so that its
    prompt ends there, padded on the left; when the last column is met, what no row needs any more
    is shifted out. A prompt must not be longer than all those that are in flight. `forward` is the
    model itself, or what was compiled of it.
    """

    def __init__(
        self, model: Any, forward: Callable[..., Any], *, num_rows: int, num_columns: int
    ) -> None:
        self.forward = forward
        self.config = model.config.get_text_config()
        self.last_position = context_length(self.config) - 1
        takes = inspect.signature(model.forward).parameters
        self.takes_positions = "position_ids" in takes
        self.cache_as = "past_key_values" if "past_key_values" in takes else "cache_params"
        self.num_rows, self.num_columns = num_rows, num_columns
        self.used = 0
        self.layers = layers_of(self.config)
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
        read = layers_of(self.config)
        logits_PV = self._forward(Cache(layers=read), ids_PS, padding_P, begin=0)
        if self.used == 0:
            self._check_memory(read)
        if begin == 0:
            self.used = length
        room = {"num_rows": self.num_rows, "num_columns": self.num_columns}
        for layer, prompt in zip(self.layers, read, strict=True):
            layer.place(prompt, group, begin=begin, **room)
        here = self.used - length
        self.padding_R = torch.cat([self.padding_R, (padding_P + here).repeat_interleave(group)])
        return logits_PV.repeat_interleave(group, 0)

    def step(self, tokens_R: Tensor) -> Tensor:
        """Append one token to every row; logits of what follows `[R, V]`."""
        if self.used == self.num_columns:
            self._shift()
        self.used += 1
        return self._forward(self.cache, tokens_R[:, None], self.padding_R, begin=self.used - 1)

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
        self.used -= distance

    def _check_memory(self, read: list[SlotLayer]) -> None:
        """Refuse slots that cannot be had, by what the first prompts take."""
        needed = sum(layer.bytes_of(self.num_rows, self.num_columns) for layer in read)
        free = free_memory(str(self.padding_R.device))
        if needed > free:
            raise UserError(
                f"keys and values of {self.num_rows} samples of up to {self.num_columns} tokens"
                f" take {bytesize(needed)}, but {bytesize(free)} are free on"
                f" {self.padding_R.device}; lower batch_size, or max_tokens"
            )

    def _forward(self, cache: Cache, ids_RT: Tensor, padding_R: Tensor, *, begin: int) -> Tensor:
        columns_T = torch.arange(begin + ids_RT.shape[1], device=ids_RT.device)
        options: dict[str, Any] = {self.cache_as: cache}
        # Where nothing has columns, padding is left out of a state as it is read.
        if begin == 0 or any(isinstance(layer, KeysAndValues) for layer in self.layers):
            options["attention_mask"] = (columns_T >= padding_R[:, None]).long()
        if self.takes_positions:
            positions_RT = columns_T[begin:] - padding_R[:, None]
            options["position_ids"] = positions_RT.clamp(0, self.last_position)
        output = self.forward(input_ids=ids_RT, use_cache=True, logits_to_keep=1, **options)
        logits_RV: Tensor = output.logits[:, -1]
        return logits_RV
