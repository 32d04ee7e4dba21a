"""The part of a model that ends in hidden states, below its output head."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def backbone(model: "PreTrainedModel") -> Any:
    """Return the part of a model that ends in hidden states.

    transformers' own `base_model` is the whole model where the prefix that it goes by names
    nothing, as in Llama 4's language model.

    Args:
        model: A causal language model or sequence classifier of transformers.

    Returns:
        The module; its output has a `last_hidden_state`.

    """
    inner: Any = model.base_model
    return getattr(model, "model", model) if inner is model else inner
