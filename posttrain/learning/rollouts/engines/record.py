"""What the rows of a call have drawn so far, and which of them have ended."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from torch import Tensor

from posttrain.stage.errors import UserError

Rows = npt.NDArray[np.int64]
RowMask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class FinishedRow:
    """One finished row."""

    token_ids: list[int]
    logprobs: list[float]
    stopped: bool


@dataclass(frozen=True)
class Record:
    """Tokens and log-probabilities of rows `_R`, the samples of a prompt adjacent.

    A `step` is the number of tokens that rows had drawn before: one for all of them, or an array
    with each one's own. All of it is numpy's, which takes a fraction of torch's time for a few
    numbers: the record is written to at every step.
    """

    tokens_RT: npt.NDArray[np.int64]
    logprobs_RT: npt.NDArray[np.float32]
    ends_R: npt.NDArray[np.int64]
    """Number of tokens of each row, once it ended; until then the most that it may have."""
    stopped_R: RowMask
    end_tokens_E: npt.NDArray[np.int64]

    @classmethod
    def blank(
        cls, room_P: Sequence[int], *, group: int, max_tokens: int, end_tokens: Sequence[int]
    ) -> "Record":
        """Make a record in which nothing is drawn yet.

        Args:
            room_P: Tokens that each prompt leaves in the context.
            group: Rows of a prompt.
            max_tokens: Most that any row draws.
            end_tokens: Ids that end a row.

        Returns:
            A record of ``P * group`` rows.

        """
        ends_R = np.minimum(np.repeat(room_P, group), max_tokens)
        shape = (len(ends_R), max_tokens)
        return cls(
            np.zeros(shape, dtype=np.int64),
            np.zeros(shape, dtype=np.float32),
            ends_R,
            np.zeros(len(ends_R), dtype=np.bool_),
            np.array(end_tokens, dtype=np.int64),
        )

    def write(
        self, rows_R: Rows, step: int | Rows, tokens_R: Tensor, logprobs_R: Tensor
    ) -> RowMask:
        """Note what was drawn. What a row draws after its end is never read.

        Args:
            rows_R: Which rows of the record these are.
            step: Number of the token in its completion, one for all rows or one for each.
            tokens_R: Token ids.
            logprobs_R: Their log-probabilities, in nats.

        Returns:
            True where the token is one that ends a text, ``[R]``.

        """
        tokens = tokens_R.cpu().numpy()
        self.tokens_RT[rows_R, step] = tokens
        self.logprobs_RT[rows_R, step] = logprobs_R.cpu().numpy()
        ended_R: RowMask = (tokens[:, None] == self.end_tokens_E).any(-1)
        return ended_R

    def drawn(self, rows_R: Rows, step: int | Rows) -> list[list[int]]:
        """Read the tokens of rows, the one of this step the last.

        Args:
            rows_R: Which rows.
            step: Tokens drawn before, of all or of each.

        Returns:
            Token ids, a list per row.

        """
        ends = np.broadcast_to(step + 1, rows_R.shape)
        rows = self.tokens_RT[rows_R, : ends.max()].tolist()
        return [tokens[:end] for tokens, end in zip(rows, ends, strict=True)]

    def close(self, rows_R: Rows, step: int | Rows, ended_R: RowMask) -> RowMask:
        """Close the rows that ended with this token.

        Args:
            rows_R: Which rows drew one.
            step: Tokens drawn before, of all or of each.
            ended_R: True where the token, or a stop string with it, ends the row.

        Returns:
            True where a row goes on.

        """
        ends_R = self.ends_R[rows_R]
        closing_R = ended_R & (ends_R > step)
        ends_R = np.where(closing_R, step + 1, ends_R)
        self.ends_R[rows_R] = ends_R
        self.stopped_R[rows_R] |= closing_R
        open_R: RowMask = ends_R > step + 1
        return open_R

    def rows(self) -> Iterator[FinishedRow]:
        """Every row, cut at its end; refused where what it was drawn from is no distribution."""
        if not np.isfinite(self.logprobs_RT).all():
            raise UserError(
                "the policy's logits are not finite, so nothing can be drawn from it: its weights"
                " are broken, as by too large a learning rate, or its number format is too small"
            )
        columns = (self.tokens_RT, self.logprobs_RT, self.ends_R, self.stopped_R)
        for tokens, logprobs, end, stopped in zip(*columns, strict=True):
            yield FinishedRow(tokens[:end].tolist(), logprobs[:end].tolist(), bool(stopped))
