"""What a layer keeps of the tokens before: keys and values of each, or a state of them all."""

from copy import copy
from typing import TYPE_CHECKING, Any

from torch import Tensor, cat
from transformers.cache_utils import CacheLayerMixin, LinearAttentionLayer

from posttrain.learning.models.architectures import refuse_undrawn, refuse_untrained
from posttrain.learning.rollouts.engines.compaction import move_to_front

if TYPE_CHECKING:
    from transformers import PretrainedConfig


class KeysAndValues(CacheLayerMixin):  # type: ignore[misc]
    """Keys and values of one layer `[R, K, T, D]`, the prompts' own or those of all slots.

    Sliding windows need nothing here: transformers masks what is out of the window.
    """

    is_sliding = False

    def __init__(self) -> None:
        super().__init__()
        self.used = 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Take these tensors as they are.

        Args:
            key_states: ``[R, K, T, D]``.
            value_states: In the same shape.

        """
        self.keys, self.values = key_states, value_states
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *_args: Any, **_options: Any
    ) -> tuple[Tensor, Tensor]:
        """Append to the first rows, and return all that these have.

        Args:
            key_states: ``[R, K, T, D]`` of the rows in front.
            value_states: In the same shape.
            *_args: What transformers has for other layers.
            **_options: As these.

        Returns:
            Keys and values of the rows in front.

        """
        num_rows, begin = len(key_states), self.used
        self.used += key_states.shape[2]
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        else:
            self.keys[:num_rows, :, begin : self.used] = key_states
            self.values[:num_rows, :, begin : self.used] = value_states
        return self.keys[:num_rows, :, : self.used], self.values[:num_rows, :, : self.used]

    def bytes_of(self, num_rows: int, num_columns: int) -> int:
        """Bytes that slots take, by what was read.

        Args:
            num_rows: Of all slots.
            num_columns: Of all slots.

        Returns:
            Bytes.

        """
        if not self.is_initialized:
            return 0
        return num_rows * num_columns * sum(_bytes(t[:1, :, :1]) for t in (self.keys, self.values))

    def place(
        self, prompt: "KeysAndValues", group: int, *, begin: int, num_rows: int, num_columns: int
    ) -> None:
        """Copy prompts, `group` times each, to the rows from `begin` on, up to the last column.

        Args:
            prompt: What was read of them.
            group: Rows of each.
            begin: Rows that are there.
            num_rows: Of all slots.
            num_columns: Of all slots.

        Returns:
            Bytes.

        """
        if not prompt.is_initialized:
            return  # the layer reads what another one keeps
        if not self.is_initialized:
            self._make_room(prompt, num_rows, num_columns)
        if begin == 0:
            self.used = prompt.used
        rows = slice(begin, begin + len(prompt.keys) * group)
        columns = slice(self.used - prompt.used, self.used)
        self.keys[rows, :, columns] = prompt.keys.repeat_interleave(group, 0)
        self.values[rows, :, columns] = prompt.values.repeat_interleave(group, 0)

    def _make_room(self, like: "KeysAndValues", num_rows: int, num_columns: int) -> None:
        """Allocate all slots; cleared, as a weight of 0 does not rule out what is not a number."""
        self.lazy_initialization(
            *(
                tensor.new_zeros(num_rows, tensor.shape[1], num_columns, tensor.shape[3])
                for tensor in (like.keys, like.values)
            )
        )

    def keep(self, rows_R: Tensor) -> None:
        """Move the chosen rows to the front; the memory stays.

        Args:
            rows_R: Indices of rows.

        """
        if self.is_initialized:
            for buffer in (self.keys, self.values):
                move_to_front(buffer[:, :, : self.used], rows_R)

    def shift(self, distance: int, *, num_rows: int) -> None:
        """Move the first rows to the left.

        Args:
            distance: Columns.
            num_rows: Rows that are in use.

        """
        if not self.is_initialized:
            return
        for buffer in (self.keys, self.values):
            moved = buffer[:num_rows, :, distance : self.used].clone()
            buffer[:num_rows, :, : self.used - distance] = moved
        self.used -= distance

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Length and offset of the mask over keys.

        Args:
            query_length: Tokens that are read.

        Returns:
            Positions, and how many of the first are not there.

        """
        return self.used + query_length, 0

    def get_seq_length(self) -> int:
        """Positions that are filled."""
        return self.used

    def get_max_length(self) -> int:
        """No limit of its own."""
        return -1


_FACTS = (
    *("is_conv_states_initialized", "is_recurrent_states_initialized", "has_previous_state"),
    *("conv_kernel_size", "dtype", "device"),
)
"""What transformers notes of a layer's states beside them."""


class States(LinearAttentionLayer):  # type: ignore[misc]
    """States of a recurrent or convolutional layer, a row each; they have no columns.

    transformers keeps what is left of a prompt out of the state.
    """

    def bytes_of(self, num_rows: int, _num_columns: int) -> int:
        """Bytes that slots take, by what was read.

        Args:
            num_rows: Of all slots.

        Returns:
            Bytes.

        """
        return num_rows * sum(_bytes(state[:1]) for _, _, state in self._states())

    def place(self, prompt: "States", group: int, *, begin: int, **_room: int) -> None:
        """Put the prompts' states behind the rows that are there.

        Args:
            prompt: What was read of them.
            group: Rows of each.
            begin: Rows that are there.
            **_room: Of layers with columns.

        """
        for kept, index, state in prompt._states():
            copies = state.repeat_interleave(group, 0)
            own = getattr(self, kept)
            own[index] = cat([own[index], copies]) if begin else copies
        for fact in _FACTS:
            setattr(self, fact, copy(getattr(prompt, fact)))

    def keep(self, rows_R: Tensor) -> None:
        """Go on with the chosen rows.

        Args:
            rows_R: Indices of rows.

        """
        for kept, index, state in self._states():
            getattr(self, kept)[index] = state[rows_R]

    def shift(self, _distance: int, *, num_rows: int) -> None:
        """Do nothing: a state has no columns.

        Args:
            _distance: Columns.
            num_rows: Rows that are in use.

        """

    def _states(self) -> list[tuple[str, int, Tensor]]:
        return [
            (kept, index, state)
            for kept in ("conv_states", "recurrent_states")
            for index, state in getattr(self, kept).items()
            if state is not None
        ]


SlotLayer = KeysAndValues | States

_STATES = ("conv", "linear_attention")
"""Kinds of layers, by transformers' names, that keep a state; others keep keys and values."""


def layers_of(config: "PretrainedConfig") -> list[SlotLayer]:
    """Make an empty layer for each of a model's.

    Args:
        config: Of the language model.

    Returns:
        The layers, from the first to the last.

    """
    refuse_undrawn(config.model_type, where="the policy")
    refuse_untrained(config.model_type, where="the policy")
    kinds = getattr(config, "layer_types", None) or ["full_attention"] * config.num_hidden_layers
    num_states = getattr(config, "number_of_conv_states", 1)
    return [States(num_states) if kind in _STATES else KeysAndValues() for kind in kinds]


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
