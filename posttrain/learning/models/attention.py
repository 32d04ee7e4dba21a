"""Which kernel computes attention, where the recipe does not leave it to transformers."""

import importlib.util
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal

from posttrain.stage.config import Capability
from posttrain.stage.errors import UserError, first_line

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Attention = Literal["sdpa", "eager", "flash_attention_2", "by_document"]
FLASH: Literal["flash_attention_2"] = "flash_attention_2"
"""Kernels of the package flash-attn, which is no extra's: it is built where it is installed."""


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


def beyond_cpu(attention: Attention | None, capability: Capability) -> str | None:
    """Say that an attention is computed on a GPU alone, where there is none.

    Args:
        attention: What a recipe asks for.
        capability: Of the device; asked where it matters.

    Returns:
        A sentence; None where it can be computed.

    """
    if attention != FLASH or capability() is not None:
        return None
    return f"attention {FLASH} needs a GPU, and the model is on the cpu; take sdpa"


def _check_flash(model: "PreTrainedModel") -> None:
    # Of a model that is not read yet nobody knows it here.
    on_cpu = model.device.type not in ("cuda", "meta")
    if beyond := beyond_cpu(FLASH, lambda: None if on_cpu else (0, 0)):
        raise UserError(beyond)
    # transformers would fetch a compiled kernel from the hub in its place.
    if importlib.util.find_spec("flash_attn") is None:
        raise UserError(
            f"attention {FLASH} needs flash-attn, which is not installed; run:"
            " pip install flash-attn --no-build-isolation, or take sdpa"
        )


def _register(_: "PreTrainedModel") -> None:
    from posttrain.learning.models.document_attention import register_by_document

    register_by_document()


_PREPARE: Mapping[str, Callable[["PreTrainedModel"], None]] = {
    FLASH: _check_flash,
    "by_document": _register,
}
"""What is to be seen to before transformers is asked for an attention."""
