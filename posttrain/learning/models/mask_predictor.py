"""A Llama that sees a whole text at once, and says what stands behind its mask tokens.

It is a plain checkpoint whose config names a mask token (`mask_token_id`) and how many tokens an
answer has with the end tokens that fill it up (`answer_canvas`). What makes it another model is its
forward pass: attention has no order. It reads *noised rows*: a text in which some tokens are
masked, and behind it the tokens that were hidden, in their order. The state in which each of these
is to be said is that of its mask, so that whoever computes log-probabilities of tokens by the
state before each one (SFT, RL, a divergence) has them given everything that is not masked.

Source: LLaDA, arXiv 2502.09992, section 2.1 and 2.2.
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers.modeling_outputs import BaseModelOutputWithPast
from transformers.models.llama.modeling_llama import LlamaModel

from posttrain.learning.models.mask_policy import is_mask_policy
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class MaskPredictor(LlamaModel):  # type: ignore[misc]
    """The base model of a mask predictor; `as_mask_predictor` makes it of a Llama's."""

    def states(self, ids_BT: Tensor, length_B: Tensor) -> Tensor:
        """Read texts with masks in them.

        Args:
            ids_BT: Token ids, padded on the right.
            length_B: Tokens of each text; what is behind them is not looked at.

        Returns:
            Last hidden states ``[B, T, C]``; at a mask, the one that says what it hides.

        """
        places_T = torch.arange(ids_BT.shape[1], device=ids_BT.device)
        read_BT = places_T < length_B[:, None]
        # As the attention's own mask it is taken as it is, and nothing is made causal.
        mask_B1TT = read_BT[:, None, None, :].expand(-1, 1, ids_BT.shape[1], -1)
        found = super().forward(input_ids=ids_BT, attention_mask=mask_B1TT, use_cache=False)
        states_BTC: Tensor = found.last_hidden_state
        return states_BTC

    def forward(self, input_ids: Tensor, **_: Any) -> BaseModelOutputWithPast:
        """Read noised rows, padded on the right with the pad token.

        Args:
            input_ids: ``[B, T]``: a text with masks, then a token for each of them.

        Returns:
            States ``[B, T, C]``; before each token behind the text that of its mask, elsewhere 0.

        Raises:
            UserError: A row has no mask, as it is no noised one.

        """
        masked_BT = input_ids == self.config.mask_token_id
        hidden_B = masked_BT.sum(-1)
        if not bool((hidden_B > 0).all()):
            raise UserError(
                "a policy of masked diffusion scores noised rows, and was given a row without a"
                " mask; set rl.producer to noised where it learns by RL"
            )
        length_B = (input_ids != self.config.pad_token_id).sum(-1) - hidden_B
        width = int(length_B.max())
        states_BTC = self.states(input_ids[:, :width], length_B)
        count_BT = torch.arange(input_ids.shape[1], device=input_ids.device) - length_B[:, None] + 1
        said_BT = (count_BT >= 0) & (count_BT < hidden_B[:, None])
        told_BTC = states_BTC.new_zeros(*input_ids.shape, states_BTC.shape[-1])
        told_BTC[said_BT] = states_BTC[masked_BT[:, :width]]
        return BaseModelOutputWithPast(last_hidden_state=told_BTC)


def as_mask_predictor(model: "PreTrainedModel") -> MaskPredictor:
    """Let a Llama read without an order from now on, in place.

    Args:
        model: A causal language model whose config names a mask token.

    Returns:
        Its base model; the head stays the model's own.

    Raises:
        UserError: It is no Llama, or none that was trained to predict masks.

    """
    if not is_mask_policy(model):
        raise UserError(
            "this policy is no mask predictor, as its config names no mask_token_id and"
            " answer_canvas; train one by a stage of tasks.denoise"
        )
    base: Any = model.base_model
    if type(base) not in (LlamaModel, MaskPredictor):
        raise UserError(
            f"a mask predictor is a Llama without adapters, and this is a {type(base).__name__}"
        )
    base.__class__ = MaskPredictor
    predictor: MaskPredictor = base
    return predictor
