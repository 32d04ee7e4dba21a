"""The distribution of a token given those before it, in two steps: its state, then its logits.

A state is `D` numbers and logits are `V`: states of all tokens may be held, logits go by slices.
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from posttrain.learning.models.final_logits import FinalLogits, final_logits
from posttrain.learning.models.logprobs import states_at
from posttrain.learning.models.narrow import head_product

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def states_before(
    model: "PreTrainedModel",
    input_ids_BT: Tensor,
    *,
    wanted_BT: Tensor,
    position_ids_BT: Tensor | None = None,
) -> Tensor:
    """Compute the last hidden state from which each wanted token is said.

    Args:
        model: Any causal language model of transformers.
        input_ids_BT: Token ids, right-padded or packed.
        wanted_BT: True at N tokens, none of them the first of its row.
        position_ids_BT: Of packed rows: each restart at 0 begins a sequence of its own.

    Returns:
        States ``[N, D]``, row by row.

    Raises:
        ValueError: The first token of a row is wanted.

    """
    if bool(wanted_BT[:, 0].any()):
        raise ValueError("the first token of a row has no past and so no distribution")
    before_BT = F.pad(wanted_BT[:, 1:], (0, 1))
    starts_B = wanted_BT.int().argmax(-1)
    return states_at(
        model,
        input_ids_BT,
        wanted_BT=before_BT,
        starts_B=starts_B,
        position_ids_BT=position_ids_BT,
    )


def head_logits(model: "PreTrainedModel", states_ND: Tensor) -> Tensor:
    """Compute a model's own logits of what follows its states, in float32.

    Args:
        model: A causal language model with an output embedding.
        states_ND: Of `states_before`.

    Returns:
        Logits ``[N, V]``.

    """
    head: Any = model.get_output_embeddings()
    return logits_by(states_ND, head.weight, head.bias, final_logits(model.config))


def logits_by(
    states_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None, final: FinalLogits
) -> Tensor:
    """Compute what `head_logits` does, by a head that is at hand.

    Args:
        states_ND: Of `states_before`.
        weight_VD: Of the output embedding.
        bias_V: Likewise; None where it has none.
        final: What the architecture does behind it.

    Returns:
        Logits ``[N, V]``, in float32.

    """
    # Under autocast the head would round the logits.
    with torch.autocast(states_ND.device.type, enabled=False):
        return final(head_product(states_ND, weight_VD, bias_V)).float()
