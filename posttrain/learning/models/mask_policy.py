"""Which checkpoints predict masks: what their config says of it.

Apart from the model itself, which needs an architecture's code that no other policy loads.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def is_mask_policy(model: "PreTrainedModel") -> bool:
    """Tell whether a model was trained to predict masks."""
    return all(hasattr(model.config, name) for name in ("mask_token_id", "answer_canvas"))


def remember_masks(model: "PreTrainedModel", *, mask: int, canvas: int) -> None:
    """Write into a model's config that it predicts masks.

    Args:
        model: A Llama.
        mask: Id of the mask token.
        canvas: Tokens of an answer, with the end tokens that fill it up.

    """
    model.config.mask_token_id = mask
    model.config.answer_canvas = canvas
