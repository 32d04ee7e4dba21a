"""Where a sample ends, said once for all engines."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def end_tokens(model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase") -> list[int]:
    """The tokenizer's end token and those that the model's generation config names, ascending."""
    configured = model.generation_config.eos_token_id
    several = configured if isinstance(configured, list) else [configured]
    return sorted({tokenizer.eos_token_id, *several} - {None})


def without_end(token_ids: Sequence[int], ends: Sequence[int]) -> Sequence[int]:
    """The tokens that are text: an end token need not be one that the tokenizer calls special."""
    return token_ids[:-1] if token_ids and token_ids[-1] in ends else token_ids


def text_before(text: str, stop: tuple[str, ...]) -> str:
    """The text up to the first stop string, or all of it."""
    ends = [text.find(string) for string in stop if string in text]
    return text[: min(ends)] if ends else text
