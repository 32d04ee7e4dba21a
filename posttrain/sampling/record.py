"""What the rows of a call have drawn so far, and which of them have ended."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Row:
    """One finished row."""

    token_ids: list[int]
    logprobs: list[float]
    stopped: bool


@dataclass(frozen=True)
class Record:
    """Tokens and log-probabilities of rows `_R`, the samples of a prompt adjacent.

    A `step` is the number of tokens that rows had drawn before: one for all of them, or a tensor
    with each one's own.
    """

    tokens_RT: Tensor
    logprobs_RT: Tensor
    ends_R: Tensor
    """Number of tokens of each row, once it ended; until then the most that it may have."""
    stopped_R: Tensor
    end_tokens_E: Tensor

    @classmethod
    def blank(
        cls,
        room_P: Sequence[int],
        *,
        group: int,
        max_tokens: int,
        end_tokens: Sequence[int],
        device: torch.device,
    ) -> "Record":
        """Nothing drawn yet; a row of a prompt may have as many tokens as its room."""
        ends_R = torch.tensor(room_P, device=device).repeat_interleave(group)
        shape = (len(ends_R), max_tokens)
        return cls(
            torch.zeros(shape, dtype=torch.long, device=device),
            torch.zeros(shape, device=device),
            ends_R.clamp_max(max_tokens),
            torch.zeros(len(ends_R), dtype=torch.bool, device=device),
            torch.tensor(end_tokens, dtype=torch.long, device=device),
        )

    def write(
        self, rows_R: Tensor, step: int | Tensor, tokens_R: Tensor, logprobs_R: Tensor
    ) -> None:
        """Note what was drawn; what a row draws after its end is never read."""
        self.tokens_RT[rows_R, step] = tokens_R
        self.logprobs_RT[rows_R, step] = logprobs_R

    def drawn(self, rows_R: Tensor, step: int | Tensor) -> list[list[int]]:
        """Tokens of these rows, the one of this step the last."""
        if isinstance(step, int):
            tokens: list[list[int]] = self.tokens_RT[rows_R, : step + 1].tolist()
            return tokens
        last = step.tolist()
        rows = self.tokens_RT[rows_R, : max(last) + 1].tolist()
        return [tokens[: end + 1] for tokens, end in zip(rows, last, strict=True)]

    def ended(self, tokens_R: Tensor) -> Tensor:
        """Which of these are end tokens."""
        return (tokens_R[:, None] == self.end_tokens_E).any(-1)

    def close(self, rows_R: Tensor, step: int | Tensor, ended_R: Tensor) -> Tensor:
        """Close the rows that ended with this token; which of them are open still."""
        closing_R = (self.ends_R[rows_R] > step) & ended_R
        chosen_R = rows_R[closing_R]
        self.ends_R[chosen_R] = 1 + (step if isinstance(step, int) else step[closing_R])
        self.stopped_R[chosen_R] = True
        return self.ends_R[rows_R] > step + 1

    def rows(self) -> Iterator[Row]:
        """Every row, cut at its end."""
        columns = (self.tokens_RT, self.logprobs_RT, self.ends_R, self.stopped_R)
        for tokens, logprobs, end, stopped in zip(*(c.tolist() for c in columns), strict=True):
            yield Row(tokens[:end], logprobs[:end], stopped)
