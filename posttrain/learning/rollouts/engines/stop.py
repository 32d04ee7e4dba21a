"""Where a sample ends, said once for all engines."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from posttrain.data.templates import end_of_turn

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def end_tokens(model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase") -> list[int]:
    """Collect the tokens that end a sample.

    Args:
        model: Its generation config may name several.
        tokenizer: Names its end token, and its chat template the one that ends a turn.

    Returns:
        Ids, ascending, each once.

    """
    configured = model.generation_config.eos_token_id
    several = configured if isinstance(configured, list) else [configured]
    return sorted({tokenizer.eos_token_id, end_of_turn(tokenizer), *several} - {None})


def without_end(token_ids: Sequence[int], ends: Sequence[int]) -> Sequence[int]:
    """Cut the end token off: it need not be one that the tokenizer calls special.

    Args:
        token_ids: Of a sample.
        ends: Ids that end one.

    Returns:
        The tokens that are text.

    """
    # Decoding with special tokens left out would therefore leave it in the text.
    return token_ids[:-1] if token_ids and token_ids[-1] in ends else token_ids


def text_of_answer(
    model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase", token_ids: Sequence[int]
) -> str:
    """Decode a whole answer, without the token that ends it.

    Args:
        model: See `end_tokens`.
        tokenizer: Decodes it.
        token_ids: Of the answer.

    Returns:
        Its text.

    """
    text_ids = without_end(token_ids, end_tokens(model, tokenizer))
    return str(tokenizer.decode(text_ids, skip_special_tokens=True))


def text_before(text: str, stop: tuple[str, ...]) -> str:
    """Cut a text at the first stop string.

    Args:
        text: What was drawn.
        stop: The stop strings.

    Returns:
        The text up to the first of them, or all of it.

    """
    ends = [text.find(string) for string in stop if string in text]
    return text[: min(ends)] if ends else text
