"""How many tokens a model can attend to, by whatever name its architecture states it."""

from typing import TYPE_CHECKING

from posttrain.learning.models.tokenizer import check_same_tokenizer
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from transformers import PretrainedConfig

    from posttrain.learning.models.load import Policy

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


def check_reads_alike(first: "Policy", other: "Policy", *, where: str) -> None:
    """Refuse a policy that cannot read what another one wrote.

    Args:
        first: The one that all must be like.
        other: The policy.
        where: Where the recipe connects it, for the error.

    Raises:
        UserError: It has another tokenizer, or another context.

    """
    check_same_tokenizer(first.tokenizer, other.tokenizer, where=where)
    ours, theirs = (context_length(each.model.config) for each in (first, other))
    if ours != theirs:
        raise UserError(
            f"{where}: its context has {theirs} tokens, and that of the first policy {ours}; take"
            " policies that read equally much, as each is to read what the others wrote"
        )
