"""From prompts and completions to right-padded tensors that say which tokens bear loss."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from posttrain.data.templates import encode_completions, encode_prompts, render_turns
from posttrain.stage.errors import UserError
from posttrain.stage.hashing import sha256_of_parts

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


_PROBED = 16
_Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Packing:
    """The borders inside a packed row of `T` tokens that holds `B` rows.

    `position_ids_BT` ``[1, T]`` restarts at 0 where a row begins. `wanted_rows_BT` is the loss mask
    of the same rows one below the other ``[B, longest]``: read row by row, its true entries are
    the wanted tokens in packed order. `last_B` are the places of the rows' last tokens.
    """

    position_ids_BT: Tensor
    wanted_rows_BT: Tensor
    last_B: Tensor

    def to(self, device: str | torch.device) -> "Packing":
        """The same on `device`."""
        moved = (self.position_ids_BT, self.wanted_rows_BT, self.last_B)
        return Packing(*(tensor.to(device) for tensor in moved))


def packing_of(length_B: Tensor, start_B: Tensor) -> Packing:
    """The borders of rows of these lengths; the tokens from `start_B` on bear loss.

    >>> packing_of(torch.tensor([2, 3]), torch.tensor([1, 1])).position_ids_BT
    tensor([[0, 1, 0, 1, 2]])
    """
    ends_B = length_B.cumsum(0)
    begins_T = torch.repeat_interleave(ends_B - length_B, length_B)
    positions_T = torch.arange(int(ends_B[-1])) - begins_T
    places_T = torch.arange(int(length_B.max()))
    wanted_BT = (places_T >= start_B[:, None]) & (places_T < length_B[:, None])
    return Packing(positions_T[None], wanted_BT, ends_B - 1)


@dataclass(frozen=True)
class TokenRow:
    """A prompt and its completion as one sequence; `start` is the first token that bears loss."""

    ids: tuple[int, ...]
    start: int


@dataclass(frozen=True)
class TokenBatch:
    """Right-padded rows, or packed ones in a single row of tensors.

    `wanted_BT` marks the tokens that bear loss, `num_units` of them.
    """

    input_ids_BT: Tensor
    wanted_BT: Tensor
    num_units: int
    packing: Packing | None = None

    def to(self, device: str | torch.device) -> "TokenBatch":
        """The same batch on `device`."""
        return TokenBatch(
            self.input_ids_BT.to(device),
            self.wanted_BT.to(device),
            self.num_units,
            None if self.packing is None else self.packing.to(device),
        )


def position_ids(batch: TokenBatch) -> Tensor | None:
    """Where each token of a packed batch is in its row; None of a padded one."""
    return None if batch.packing is None else batch.packing.position_ids_BT


def encode_rows(
    tokenizer: "PreTrainedTokenizerBase",
    prompts: Sequence[str],
    texts: Sequence[str],
    *,
    mask_prompts: bool = True,
    allow_empty: bool = False,
) -> list[TokenRow]:
    """One row per prompt and completion; unmasked, all tokens but the first bear loss.

    `allow_empty` is for texts that a policy wrote: it may have ended at once.
    """
    completions = encode_completions(tokenizer, texts, allow_empty=allow_empty)
    pairs = zip(encode_prompts(tokenizer, prompts), completions, strict=True)
    return [
        TokenRow((*prompt, *completion), start=len(prompt) if mask_prompts else 1)
        for prompt, completion in pairs
    ]


def check_answers(
    tokenizer: "PreTrainedTokenizerBase", prompts: Sequence[str], texts: Sequence[str]
) -> None:
    """Refuse a tokenizer or a chat template that drops an answer; the first rows stand for all."""
    for prompt, text in zip(prompts[:_PROBED], texts[:_PROBED], strict=True):
        if not text:
            continue
        ids = encode_completions(tokenizer, [text])[0]
        if tokenizer.unk_token_id is not None and set(ids[:-1]) <= {tokenizer.unk_token_id}:
            raise UserError(
                f"the tokenizer knows nothing of the answer {text[:40]!r}; take another tokenizer"
            )
        if not tokenizer.chat_template:
            continue
        turns = [{"role": "user", "content": prompt}, {"role": "assistant", "content": text}]
        if text.strip() not in render_turns(tokenizer, turns, open_answer=False):
            raise UserError(
                f"the tokenizer's chat template drops the answer {text[:40]!r}; "
                "use a template that writes the assistant's message, or none"
            )


def check_rows(rows: Sequence[TokenRow], *, num_embeddings: int) -> None:
    """Refuse, before the first step, rows that a model could not learn from."""
    if not rows:
        raise UserError("there is no row to train on; see what the stage before dropped, and why")
    for index, row in enumerate(rows):
        outside = next((t for t in (max(row.ids), min(row.ids)) if not 0 <= t < num_embeddings), 0)
        if outside:
            raise UserError(
                f"row {index} holds token {outside}, but the model embeds {num_embeddings}; "
                "take model and tokenizer from one checkpoint"
            )
        if not 1 <= row.start < len(row.ids):
            raise UserError(f"row {index} has no token that bears loss; drop empty completions")


class TokenTable:
    """Token rows laid end to end, so that a batch is one gather."""

    def __init__(self, rows: Sequence[TokenRow], *, pad: int, packed: bool = False) -> None:
        # In numpy: torch takes three times as long for so many tiny operations.
        self._flat = np.array([token for row in rows for token in row.ids])
        self._length_N = np.array([len(row.ids) for row in rows])
        self._start_N = np.array([row.start for row in rows])
        self._offset_N = self._length_N.cumsum() - self._length_N
        self._pad = pad
        self._packed = packed

    @property
    def digest(self) -> str:
        """SHA-256 of tokens, lengths and starts, in order."""
        arrays = (self._flat, self._length_N, self._start_N)
        return sha256_of_parts(array.tobytes() for array in arrays)

    def batch(self, part: Sequence[int]) -> TokenBatch:
        """The rows of these indices: end to end if packed, else padded on the right."""
        rows_B = np.array(part)
        length_B, start_B = self._length_N[rows_B], self._start_N[rows_B]
        if self._packed:
            return self._pack(rows_B, length_B, start_B)
        positions_T = np.arange(length_B.max())
        inside_BT = positions_T < length_B[:, None]
        places_BT = np.where(inside_BT, self._offset_N[rows_B, None] + positions_T, 0)
        input_ids_BT = np.where(inside_BT, self._flat[places_BT], self._pad)
        wanted_BT = inside_BT & (positions_T >= start_B[:, None])
        return TokenBatch(
            torch.from_numpy(input_ids_BT),
            torch.from_numpy(wanted_BT),
            int((length_B - start_B).sum()),
        )

    def _pack(self, rows_B: _Ints, length_B: _Ints, start_B: _Ints) -> TokenBatch:
        packing = packing_of(torch.from_numpy(length_B), torch.from_numpy(start_B))
        positions_T = packing.position_ids_BT[0].numpy()
        input_ids_T = self._flat[self._offset_N[rows_B].repeat(length_B) + positions_T]
        wanted_T = positions_T >= start_B.repeat(length_B)
        return TokenBatch(
            torch.from_numpy(input_ids_T[None]),
            torch.from_numpy(wanted_T[None]),
            int(wanted_T.sum()),
            packing,
        )
