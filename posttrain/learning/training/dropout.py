"""Dropout taken out of a model whose log-probabilities must not be noisy."""

from typing import TYPE_CHECKING

import torch

from posttrain.learning.models.logprobs import hidden_states
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_NAMED = ("drop",)
"""What the names have in common by which modules of transformers hold a chance of dropping:
`attention_dropout`, `residual_dropout`, `layerdrop`, `resid_pdrop`, OPT's bare `dropout`."""
_TOLERANCE = 1e-4


def without_dropout(model: "PreTrainedModel") -> None:
    """Set every dropout to 0, so that training mode computes what evaluation mode does.

    Args:
        model: Changed in place; its config stays as it is.

    Raises:
        UserError: Two passes in training mode still differ: the architecture reads its dropout from
            elsewhere, as Falcon does from its config.

    """
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        for name, value in vars(module).items():
            if isinstance(value, float) and any(part in name for part in _NAMED):
                vars(module)[name] = 0.0
    gap = _difference_of_passes(model)
    if not gap <= _TOLERANCE:
        raise UserError(
            f"{type(model).__name__} still drops at random in training mode: hidden states of two"
            f" passes differ by {gap:.2g}; set the dropouts in the model's config.json to 0.0"
        )


@torch.no_grad()
def _difference_of_passes(model: "PreTrainedModel") -> float:
    """Largest distance of two passes in training mode, as a share of the largest state."""
    num_embeddings = model.get_input_embeddings().weight.shape[0]
    ids_BT = torch.arange(1, 17, device=model.device)[None] % num_embeddings
    was_training = model.training
    devices = [model.device] if model.device.type != "cpu" else []
    # What is drawn here is drawn from nobody's stream.
    with torch.random.fork_rng(devices, device_type=model.device.type):
        model.train()
        one, other = hidden_states(model, ids_BT), hidden_states(model, ids_BT)
    model.train(was_training)
    return float((one - other).abs().max() / one.abs().max())
