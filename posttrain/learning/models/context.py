"""How many tokens a model can attend to, by whatever name its architecture states it."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PretrainedConfig

_NAMES = ("max_position_embeddings", "max_seq_len", "seq_length")
"""Most architectures; MPT; Bloom, where the checkpoint states what it was trained on."""
NO_LIMIT = 1 << 20
"""Of state space models, and of positions as distances, which have no last position."""


def context_length(config: "PretrainedConfig") -> int:
    """Positions that a model knows.

    Args:
        config: Of a whole model; where that reads images too, its language model is asked.

    Returns:
        What the configuration states, or `NO_LIMIT` where it states nothing.

    """
    text = config.get_text_config()
    stated = (getattr(text, name, None) for name in _NAMES)
    return next((int(length) for length in stated if length), NO_LIMIT)
