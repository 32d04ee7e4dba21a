"""From prompts and completions to right-padded tensors that say which tokens bear loss."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from posttrain.data.templates import encode_completions, encode_prompts
from posttrain.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class TokenRow:
    """A prompt and its completion as one sequence; `start` is the first token that bears loss."""

    ids: tuple[int, ...]
    start: int


@dataclass(frozen=True)
class TokenBatch:
    """Right-padded rows; `wanted_BT` marks the tokens that bear loss, `num_units` of them."""

    input_ids_BT: Tensor
    wanted_BT: Tensor
    num_units: int

    def to(self, device: str | torch.device) -> "TokenBatch":
        """The same batch on `device`."""
        return TokenBatch(self.input_ids_BT.to(device), self.wanted_BT.to(device), self.num_units)


def encode_rows(
    tokenizer: "PreTrainedTokenizerBase",
    prompts: Sequence[str],
    texts: Sequence[str],
    *,
    mask_prompts: bool = True,
) -> list[TokenRow]:
    """One row per prompt and completion; unmasked, all tokens but the first bear loss."""
    pairs = zip(
        encode_prompts(tokenizer, prompts), encode_completions(tokenizer, texts), strict=True
    )
    return [
        TokenRow((*prompt, *completion), start=len(prompt) if mask_prompts else 1)
        for prompt, completion in pairs
    ]


def check_rows(rows: Sequence[TokenRow], *, num_embeddings: int) -> None:
    """Refuse, before the first step, rows that a model could not learn from."""
    if not rows:
        raise UserError("there is no row to train on; see what the stage before dropped, and why")
    for index, row in enumerate(rows):
        if max(row.ids) >= num_embeddings:
            raise UserError(
                f"row {index} holds token {max(row.ids)}, but the model embeds {num_embeddings}; "
                "take model and tokenizer from one checkpoint"
            )
        if not 1 <= row.start < len(row.ids):
            raise UserError(f"row {index} has no token that bears loss; drop empty completions")


class TokenTable:
    """Token rows laid end to end, so that a batch is one gather."""

    def __init__(self, rows: Sequence[TokenRow], *, pad: int) -> None:
        self._flat = torch.tensor([token for row in rows for token in row.ids])
        self._length_N = torch.tensor([len(row.ids) for row in rows])
        self._start_N = torch.tensor([row.start for row in rows])
        self._offset_N = self._length_N.cumsum(0) - self._length_N
        self._pad = pad

    def batch(self, part: Sequence[int]) -> TokenBatch:
        """The rows of these indices, padded on the right to the longest."""
        rows_B = torch.tensor(part)
        length_B, start_B = self._length_N[rows_B], self._start_N[rows_B]
        positions_T = torch.arange(int(length_B.max()))
        inside_BT = positions_T < length_B[:, None]
        places_BT = (self._offset_N[rows_B][:, None] + positions_T).where(inside_BT, 0)
        input_ids_BT = self._flat[places_BT].where(inside_BT, self._pad)
        wanted_BT = inside_BT & (positions_T >= start_B[:, None])
        return TokenBatch(input_ids_BT, wanted_BT, int((length_B - start_B).sum()))
