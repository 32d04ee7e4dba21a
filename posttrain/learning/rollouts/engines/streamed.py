"""The in-process engine, heard token by token: what it draws is what it draws unheard."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from torch import Tensor

from posttrain.learning.rollouts.engines.base import Prompt, Sample, SamplingParams
from posttrain.learning.rollouts.engines.record import Record, RowMask, Rows
from posttrain.learning.rollouts.engines.torch_engine import TorchRolloutEngine


class DrawnToken(NamedTuple):
    """One token, as it was drawn."""

    row: int
    """Of the only prompt of a call the index of the sample; of several an order of the engine's."""
    token_id: int
    logprob: float


Hear = Callable[[list[DrawnToken]], None]
"""Told the tokens of every step; what it raises ends the call."""


class StreamedEngine(TorchRolloutEngine):
    """The torch engine, which tells every token as it is drawn; one call at a time."""

    _hear: Hear | None = None

    def sample_heard(
        self, prompts: Sequence[Prompt], params: SamplingParams, hear: Hear
    ) -> list[Sample]:
        """Draw as `sample` does, and tell the tokens of every step.

        Args:
            prompts: As for `sample`.
            params: As for `sample`.
            hear: Told each step's tokens, those that end a sample with them.

        Returns:
            The samples: bit for bit those of `sample`.

        Raises:
            UserError: As `sample` does; and whatever `hear` raises.

        """
        self._hear = hear
        try:
            return self.sample(prompts, params)
        finally:
            self._hear = None

    def _note(
        self,
        record: Record,
        rows_R: Rows,
        step: int | Rows,
        drawn: tuple[Tensor, Tensor],
        params: SamplingParams,
    ) -> RowMask:
        open_R = super()._note(record, rows_R, step, drawn, params)
        if self._hear is not None:
            # Rows that ended before are drawn on beside the others of their prompt, and not read.
            counts_R = record.ends_R[rows_R] > step
            tokens, logprobs = (each.tolist() for each in drawn)
            each_row = zip(rows_R.tolist(), tokens, logprobs, counts_R.tolist(), strict=True)
            self._hear([DrawnToken(*row) for *row, counts in each_row if counts])
        return open_R
