"""Which kernel computes attention, where the recipe does not leave it to transformers."""

import importlib.util
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal

from posttrain.stage.errors import UserError, first_line

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Attention = Literal["sdpa", "eager", "flash_attention_2", "by_document"]


def set_attention(model: "PreTrainedModel", attention: Attention) -> None:
    """Let a loaded model compute attention so from now on.

    Args:
        model: Of transformers; changed in place.
        attention: Implementation by its name in transformers.

    Raises:
        UserError: The model does not take it, or what it needs is not installed.

    """
    prepare = _PREPARE.get(attention)
    if prepare is not None:
        prepare(model)
    try:
        model.set_attn_implementation(attention)
    except (ValueError, ImportError) as error:
        raise UserError(
            f"attention {attention}: {type(model).__name__} does not take it"
            f" ({first_line(error)}); take eager, or leave it out"
        ) from None


def _check_flash(model: "PreTrainedModel") -> None:
    # transformers would fetch a compiled kernel from the hub in its place.
    if importlib.util.find_spec("flash_attn") is None:
        raise UserError(
            "attention flash_attention_2 needs flash-attn, which is not installed; run:"
            " pip install flash-attn --no-build-isolation, or take sdpa"
        )
    # Of a model that is not read yet nobody knows it here.
    if model.device.type not in ("cuda", "meta"):
        raise UserError(
            "attention flash_attention_2 needs a GPU, and this model is on the"
            f" {model.device.type}; take sdpa"
        )


def _register(_: "PreTrainedModel") -> None:
    from posttrain.learning.models.document_attention import register_by_document

    register_by_document()


_PREPARE: Mapping[str, Callable[["PreTrainedModel"], None]] = {
    "flash_attention_2": _check_flash,
    "by_document": _register,
}
"""What is to be seen to before transformers is asked for an attention."""
