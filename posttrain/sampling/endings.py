"""Where a sample ends, said once for all engines."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def end_tokens(model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase") -> list[int]:
    """The tokenizer's end token and those that the model's generation config names, ascending."""
    configured = model.generation_config.eos_token_id
    several = configured if isinstance(configured, list) else [configured]
    return sorted({tokenizer.eos_token_id, *several} - {None})


def text_before(text: str, stop: tuple[str, ...]) -> str:
    """The text up to the first stop string, or all of it."""
    ends = [text.find(string) for string in stop if string in text]
    return text[: min(ends)] if ends else text
