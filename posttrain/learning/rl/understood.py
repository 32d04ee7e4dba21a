"""How well a policy understands what others wrote: by the answer that it gives behind it."""

from collections.abc import Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

import torch

from posttrain.data.templates import encode_completions
from posttrain.learning.models.logprobs import token_logprobs

if TYPE_CHECKING:
    from posttrain.learning.rl.producers.base import Workbench


def understood(
    bench: "Workbench", asked: Sequence[int], traces: Sequence[str], answer: str
) -> list[float]:
    """Compute the mean probability of the answer's tokens behind each trace.

    A trace counts up to the last place in which it states the answer itself. Source: AMPO, arXiv
    2510.02227; SII-Enigma/AMPO at b88d365 (compute_score_name mean_exp_log_softmax).

    Args:
        bench: With the policy.
        asked: Tokens of the prompt.
        traces: What others wrote.
        answer: The reference answer.

    Returns:
        A number from 0 to 1 for each trace; 0 of one that does not state the answer.

    """
    assert bench.policy is not None
    tokenizer, model = bench.policy.tokenizer, bench.policy.model
    found = []
    for text in traces:
        before, stated, _ = text.rpartition(answer)
        if not stated:
            found.append(0.0)
            continue
        # The answer's tokens are those that differ once it is there: a space may be one of them.
        thought, whole = (
            row[:-1]
            for row in encode_completions(tokenizer, [before, before + answer], allow_empty=True)
        )
        pairs = zip(thought, whole, strict=False)
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        thought, said = whole[:same], whole[same:]
        ids = torch.tensor([[*asked, *thought, *said]], device=bench.device)
        wanted = torch.zeros_like(ids, dtype=torch.bool)
        wanted[:, -len(said) :] = True
        with torch.no_grad():
            logprobs = token_logprobs(model, ids, wanted_BT=wanted, temperature=1.0).logprobs_BT
        found.append(float(logprobs[wanted].exp().mean()))
    return found
