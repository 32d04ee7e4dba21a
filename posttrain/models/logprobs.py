"""Token log-probabilities: the one function behind SFT, references, preferences, RL, evaluation.

Everything is aligned with the tokens themselves: entry ``[b, t]`` belongs to ``input_ids_BT[b, t]``
given the tokens before it. Column 0 has no past and is never wanted.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.utils.checkpoint
from torch import Tensor
from torch.nn import functional as F

if TYPE_CHECKING:
    from transformers import PreTrainedModel

CHUNK_ELEMENTS = 1 << 24


class TokenLogprobs(NamedTuple):
    """Log-probabilities in nats, and the entropy of the distribution each was drawn from."""

    logprobs_BT: Tensor
    entropy_BT: Tensor | None


def token_logprobs(
    model: "PreTrainedModel",
    input_ids_BT: Tensor,
    *,
    wanted_BT: Tensor,
    attention_mask_BT: Tensor | None = None,
    temperature: float = 1.0,
    with_entropy: bool = False,
    chunk_elements: int = CHUNK_ELEMENTS,
) -> TokenLogprobs:
    """Log-probability of each wanted token given its past; unwanted entries are exactly 0.

    Logits exist only at wanted positions, `chunk_elements` of them at a time (recomputed in the
    backward pass), so never ``B x T x V``. Rows are right-padded, where causal attention needs no
    mask; give `attention_mask_BT` only for left-padded rows. The entropy carries no gradient.
    """
    flat_N, entropy_N = wanted_logprobs(
        model,
        input_ids_BT,
        wanted_BT=wanted_BT,
        attention_mask_BT=attention_mask_BT,
        temperature=temperature,
        with_entropy=with_entropy,
        chunk_elements=chunk_elements,
    )
    zeros_BT = flat_N.new_zeros(wanted_BT.shape)
    entropy_BT = None if entropy_N is None else zeros_BT.masked_scatter(wanted_BT, entropy_N)
    return TokenLogprobs(zeros_BT.masked_scatter(wanted_BT, flat_N), entropy_BT)


def wanted_logprobs(
    model: "PreTrainedModel",
    input_ids_BT: Tensor,
    *,
    wanted_BT: Tensor,
    attention_mask_BT: Tensor | None = None,
    temperature: float = 1.0,
    with_entropy: bool = False,
    chunk_elements: int = CHUNK_ELEMENTS,
) -> tuple[Tensor, Tensor | None]:
    """As `token_logprobs`, but flat: one entry per wanted token, in row-major order ``[N]``."""
    if bool(wanted_BT[:, 0].any()):
        raise ValueError("the first token of a row has no past and so no log-probability")
    hidden_BTD = hidden_states(model, input_ids_BT, attention_mask_BT=attention_mask_BT)
    hidden_ND = hidden_BTD[:, :-1][wanted_BT[:, 1:]]
    targets_N = input_ids_BT[:, 1:][wanted_BT[:, 1:]]
    head: Any = model.get_output_embeddings()
    weight_VD, bias_V = head.weight, head.bias
    rows = max(1, chunk_elements // weight_VD.shape[0])
    if len(targets_N) <= rows:
        return _logprobs(hidden_ND, weight_VD, bias_V, targets_N, temperature, with_entropy)
    parts = [
        torch.utils.checkpoint.checkpoint(
            _logprobs,
            hidden,
            weight_VD,
            bias_V,
            targets,
            temperature,
            with_entropy,
            use_reentrant=False,
            preserve_rng_state=False,
        )
        for hidden, targets in zip(
            torch.split(hidden_ND, rows), torch.split(targets_N, rows), strict=True
        )
    ]
    entropy = torch.cat([part[1] for part in parts]) if with_entropy else None
    return torch.cat([part[0] for part in parts]), entropy


def hidden_states(
    model: "PreTrainedModel", input_ids_BT: Tensor, *, attention_mask_BT: Tensor | None = None
) -> Tensor:
    """Last hidden states ``[B, T, D]``, ready for the output head; right-padded unless masked."""
    options: dict[str, Tensor] = {}
    if attention_mask_BT is not None:
        positions_BT = (attention_mask_BT.long().cumsum(-1) - 1).clamp_min(0)
        options = {"attention_mask": attention_mask_BT, "position_ids": positions_BT}
    states_BTD: Tensor = model.base_model(
        input_ids=input_ids_BT, use_cache=False, **options
    ).last_hidden_state
    return states_BTD


def _logprobs(
    hidden_ND: Tensor,
    weight_VD: Tensor,
    bias_V: Tensor | None,
    targets_N: Tensor,
    temperature: float,
    with_entropy: bool,
) -> tuple[Tensor, Tensor | None]:
    logits_NV = F.linear(hidden_ND, weight_VD, bias_V).float()
    if temperature != 1.0:
        logits_NV = logits_NV / temperature
    logprobs_N = -F.cross_entropy(logits_NV, targets_N, reduction="none")
    if not with_entropy:
        return logprobs_N, None
    with torch.no_grad():
        all_NV = logits_NV.log_softmax(-1)
        entropy_N = -(all_NV.exp() * all_NV).sum(-1)
    return logprobs_N, entropy_N
