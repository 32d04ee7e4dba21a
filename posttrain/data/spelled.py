"""Text that spells a special token stays text: only a chat template may write one.

A mark goes into what others said before a template writes it, and comes out as the text is encoded.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from posttrain.data.contexts import Message

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

MARK = "\U0010fffd"
"""A private character, which stands for nothing in any text."""
_FROM_OUTSIDE = ("user", "tool")


def encode_written(tokenizer: "PreTrainedTokenizerBase", text: str) -> list[int]:
    """Encode what a chat template has written of messages that `as_text` has been over.

    Args:
        tokenizer: With the template.
        text: As the template wrote it.

    Returns:
        Token ids: the template's special tokens are what they are, and those that a message spells
        are their letters. Of a text in which none does, they are those of the text as a whole.

    """
    return [token for ids, _ in pieces_of(tokenizer, text) for token in ids]


def as_text(tokenizer: "PreTrainedTokenizerBase", turns: Sequence[Message]) -> list[Message]:
    """Mark what users and tools say, so that no text of theirs becomes a token that a model obeys.

    A page that spells the end of a turn must not end one. What the system and the assistant say is
    the recipe's, or was drawn, and stays as it is.

    Args:
        tokenizer: Knows which texts are tokens of their own.
        turns: Messages, before a template writes them.

    Returns:
        The messages; `encode_written` takes the marks out.

    """
    names = [str(token) for token in tokenizer.added_tokens_decoder.values()]

    def marked(content: str) -> str:
        for name in names:
            if len(name) > 1:
                content = content.replace(name, f"{name[0]}{MARK}{name[1:]}")
        return content

    return [
        {**turn, "content": marked(turn["content"])}
        if turn["role"] in _FROM_OUTSIDE and isinstance(turn.get("content"), str)
        else turn
        for turn in turns
    ]


def pieces_of(
    tokenizer: "PreTrainedTokenizerBase", text: str
) -> Iterator[tuple[list[int], list[tuple[int, int]]]]:
    """Encode what lies between the marks of a text.

    Args:
        tokenizer: With the template.
        text: As the template wrote it.

    Yields:
        Token ids of a piece, and for each the characters of the text without marks that it is of.

    """
    begin = 0
    for piece in text.split(MARK):
        encoded = tokenizer(
            piece,
            add_special_tokens=False,
            split_special_tokens=False,
            return_offsets_mapping=tokenizer.is_fast,
            return_attention_mask=False,
        )
        places = encoded["offset_mapping"] if tokenizer.is_fast else []
        yield list(encoded["input_ids"]), [(a + begin, b + begin) for a, b in places]
        begin += len(piece)
