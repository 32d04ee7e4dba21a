"""An engine with weights of its own: what it is handed, and whether it computes the policy."""

import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from posttrain.learning.models.logprobs import token_logprobs
from posttrain.learning.rollouts.engines.base import Prompt, SamplingParams
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from posttrain.learning.models.load import Policy
    from posttrain.learning.rollouts.engines.base import RolloutEngine

_LAYER = re.compile(r".*?\.\d+\.")
_TEXT = "1 + 2 = 3, 4 + 5 ="
_MOST_READ, _DRAWN = 16, 8
_FURTHEST = 0.5
"""Nats a token. bfloat16 brought a tenth of it at most (benchmarks/learner), and weights that were
not taken several nats."""


def as_stored(
    model: "PreTrainedModel", weights: Iterable[tuple[str, Tensor]]
) -> Iterator[tuple[str, Tensor]]:
    """Give weights the names and shapes that `save_pretrained` would write.

    transformers holds the experts of a layer in one tensor, and calls layers of some architectures
    otherwise than their checkpoints do. A layer is turned back at a time, so that no more than its
    experts are there twice.

    Args:
        model: Whose weights they are.
        weights: By the module's own names, those of a layer in a row.

    Yields:
        Name and tensor.

    """
    from transformers.core_model_loading import revert_weight_conversion

    for _, layer in groupby(weights, key=lambda each: _layer_of(each[0])):
        yield from revert_weight_conversion(model, dict(layer)).items()


def _layer_of(name: str) -> str:
    found = _LAYER.match(name)
    return found[0] if found else ""


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
