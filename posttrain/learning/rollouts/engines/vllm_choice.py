"""Draw tokens inside vLLM exactly as the torch engine draws them.

vLLM's own sampler gives log-probabilities either before the temperature or after the top-k and
top-p cuts, and its noise depends on the device. This logits processor, vLLM's own way to add one,
takes the choice over: it draws with the same numbers as every other engine here, notes the
log-probability, and leaves vLLM no other token to take. So one call gives the same samples on
either engine, up to the rounding of matrix products.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from posttrain.learning.rollouts.engines.decode import choose_tokens, greedy
from posttrain.learning.rollouts.engines.rng import RowKeys, uniforms

if TYPE_CHECKING:
    from posttrain.learning.rollouts.engines.base import SamplingParams

ROW = "posttrain_row"
"""Names a request's row in `Draws`, among its `extra_args`."""


@dataclass(frozen=True)
class Draws:
    """One call of `sample`: what its rows `_R` draw with, and what was drawn."""

    params: "SamplingParams"
    keys_R: RowKeys
    logprobs: list[list[float]]
    """By row, and by token within a row."""

    def choose(self, logits_BV: Tensor, rows_B: Sequence[int], steps_B: Sequence[int]) -> Tensor:
        """Choose a token for each row at its own step, and note its log-probability.

        Args:
            logits_BV: Of the model, not divided by the temperature.
            rows_B: Number of each row in the call.
            steps_B: Tokens that each row has drawn before.

        Returns:
            Token ids, ``[B]``.

        """
        params = self.params
        if params.greedy:
            tokens_B, logprobs_B = greedy(logits_BV)
        else:
            keys_B, steps = self.keys_R[list(rows_B)], np.array(steps_B, dtype=np.uint64)
            tokens_B, logprobs_B = choose_tokens(
                logits_BV,
                uniforms(keys_B, steps).to(logits_BV.device),
                temperature=params.temperature,
                top_k=params.top_k,
                top_p=params.top_p,
            )
        for row, step, logprob in zip(rows_B, steps_B, logprobs_B.tolist(), strict=True):
            # A step is drawn again where vLLM throws the first away: of a prompt that it reads in
            # pieces, or of a request that it had to set aside.
            self.logprobs[row][step:] = [logprob]
        return tokens_B


class Choice:
    """vLLM's view of `Draws`: which row and which tokens so far stand at each batch index."""

    draws: Draws
    """Of the call that runs; set on the class, of which vLLM makes the one instance."""

    def __init__(self, *_: Any) -> None:
        self.requests: dict[int, tuple[int, list[int]]] = {}

    def is_argmax_invariant(self) -> bool:
        """It decides what the argmax is."""
        return False

    def update_state(self, batch_update: Any) -> None:
        """Follow what vLLM did to its batch; it keeps the lists of tokens up to date itself."""
        from vllm.v1.sample.logits_processor.builtin import process_dict_updates

        process_dict_updates(self.requests, batch_update, _request)

    def apply(self, logits: Tensor) -> Tensor:
        """Rule out all tokens but the chosen one of each row of `[B, V]`, in place."""
        requests = [self.requests[index] for index in range(len(logits))]
        tokens_B = self.draws.choose(
            logits, [row for row, _ in requests], [len(drawn) for _, drawn in requests]
        )
        logits.fill_(-torch.inf)
        return logits.scatter_(1, tokens_B[:, None], 0.0)


def _request(params: Any, _: Any, drawn: list[int]) -> tuple[int, list[int]]:
    return params.extra_args[ROW], drawn


def choice_class() -> type[Choice]:
    """A class of its own for one engine, in the form that vLLM takes."""
    from vllm.v1.sample.logits_processor import LogitsProcessor

    return type("Choice", (Choice, LogitsProcessor), {})
