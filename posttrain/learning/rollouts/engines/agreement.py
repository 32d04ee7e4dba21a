"""Whether an engine with weights of its own computes what the policy does."""

from typing import TYPE_CHECKING

import torch

from posttrain.learning.models.logprobs import token_logprobs
from posttrain.learning.rollouts.engines.base import Prompt, SamplingParams
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from posttrain.learning.models.load import Policy
    from posttrain.learning.rollouts.engines.base import RolloutEngine

_TEXT = "1 + 2 = 3, 4 + 5 ="
_MOST_READ, _DRAWN = 16, 8
_FURTHEST = 0.5
"""Nats a token. bfloat16 brings a twentieth of it (benchmarks/learner), and weights that were not
taken several nats; in between lies what a nearly uniform policy hides."""


def refuse_other_distribution(engine: "RolloutEngine", policy: "Policy", *, name: str) -> None:
    """Refuse an engine whose log-probabilities are not the policy's, by a short greedy answer.

    An engine may start on an architecture and then not take all of its weights, without a word.

    Args:
        engine: Already open, with the policy's present weights.
        policy: Read by the trainer's own pass.
        name: Of the engine.

    Raises:
        UserError: They are further apart than rounding brings them.

    """
    ids = tuple(policy.tokenizer(_TEXT).input_ids)[: min(_MOST_READ, engine.context_length // 2)]
    params = SamplingParams(max_tokens=_DRAWN, temperature=0.0)
    (sample,) = engine.sample([Prompt("agreement", ids)], params)
    model, device = policy.model, policy.model.device
    ids_1T = torch.tensor([ids + sample.token_ids], device=device)
    wanted_1T = torch.arange(ids_1T.shape[1], device=device)[None] >= len(ids)
    was_training = model.training
    model.eval()
    with torch.no_grad():
        found_1T = token_logprobs(model, ids_1T, wanted_BT=wanted_1T).logprobs_BT
    model.train(was_training)
    found_N, drawn_N = found_1T[wanted_1T], torch.tensor(sample.logprobs, device=device)
    gap = float((found_N - drawn_N).abs().mean())
    # A policy that computes no numbers is refused where it is drawn from.
    if found_N.isfinite().all() and not gap <= _FURTHEST:
        raise UserError(
            f"engine {name} computes something else than this policy ({model.config.model_type}):"
            f" its log-probabilities lie {gap:.2g} nats a token from the trainer's; take engine"
            " torch"
        )
