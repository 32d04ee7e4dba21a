"""The distribution of a token given those before it, in two steps: its state, then its logits.

A state is `D` numbers and logits are `V`: states of all tokens may be held, logits go by slices.
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from posttrain.learning.maths.reduce import widened
from posttrain.learning.models.final_logits import final_logits
from posttrain.learning.models.logprobs import states_at

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def states_before(model: "PreTrainedModel", input_ids_BT: Tensor, *, wanted_BT: Tensor) -> Tensor:
    """Compute the last hidden state from which each wanted token is said.

    Args:
        model: Any causal language model of transformers.
        input_ids_BT: Token ids, right-padded.
        wanted_BT: True at N tokens, none of them the first of its row.

    Returns:
        States ``[N, D]``, row by row.

    Raises:
        ValueError: The first token of a row is wanted.

    """
    if bool(wanted_BT[:, 0].any()):
        raise ValueError("the first token of a row has no past and so no distribution")
    before_BT = F.pad(wanted_BT[:, 1:], (0, 1))
    starts_B = wanted_BT.int().argmax(-1)
    return states_at(model, input_ids_BT, wanted_BT=before_BT, starts_B=starts_B)


def head_logits(model: "PreTrainedModel", states_ND: Tensor) -> Tensor:
    """Compute a model's own logits of what follows its states, in float32.

    Args:
        model: A causal language model with an output embedding.
        states_ND: Of `states_before`.

    Returns:
        Logits ``[N, V]``.

    """
    head: Any = model.get_output_embeddings()
    # Under autocast the head would round the logits.
    with torch.autocast(states_ND.device.type, enabled=False):
        weight_VD = widened(head.weight)
        logits_NV = F.linear(states_ND.to(weight_VD.dtype), weight_VD, head.bias)
        return final_logits(model.config)(logits_NV).float()
