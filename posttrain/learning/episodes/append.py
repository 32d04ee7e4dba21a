"""What a role reads between two of its turns, as the tokens that its chat template writes there.

What was drawn stays as it was drawn. Whoever renders the conversation as text again, and tokenizes
that, trains on tokens that the policy never drew.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from posttrain.data.contexts import THINKING, THOUGHT
from posttrain.data.spelled import as_text, encode_written
from posttrain.data.templates import BORDER, end_of_turn, render_turns
from posttrain.learning.episodes.environments.base import Told
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Words that no system prompt of a template has.
_ASKED, _SAID, _TOLD = "2 + 3 =", "zqfive", "zqnine"


def appended(
    tokenizer: "PreTrainedTokenizerBase", new: Sequence[Told], *, ended: bool
) -> tuple[int, ...]:
    """Tokenize what stands between what a role has said and what it says next.

    Args:
        tokenizer: Of the role, with its chat template; without one a message is its text and a
            newline.
        new: What it reads, at least one message.
        ended: True where the last token that it drew ends its turn; else that token comes first.

    Returns:
        Token ids: the template's closing of the role's turn, the messages, and the opening of the
        role's next turn.

    Raises:
        UserError: The template fails on such messages, or does not write what was said before.

    """
    end = end_of_turn(tokenizer)
    if tokenizer.chat_template:
        ids = tuple(encode_written(tokenizer, _behind(tokenizer, new)))
    else:
        text = "".join(each.text + BORDER for each in new)
        encoded = tokenizer(
            text, add_special_tokens=False, split_special_tokens=True, return_attention_mask=False
        )
        ids = tuple(encoded["input_ids"])
    return ids if ended else (end, *ids)


def _behind(tokenizer: "PreTrainedTokenizerBase", new: Sequence[Told]) -> str:
    """The text behind an answer and the token that ends it."""
    turns = [*_answered(_SAID), *as_text(tokenizer, [_as_turn(each) for each in new])]
    _, said, behind = render_turns(tokenizer, turns, open_answer=True).partition(_SAID)
    if not said:
        raise UserError(
            "the tokenizer's chat template drops what the assistant said before, so no episode of"
            " several turns can be written; use a template that writes all turns"
        )
    end = str(tokenizer.convert_ids_to_tokens(end_of_turn(tokenizer)))
    # Some write a space before the token, which was drawn without one.
    closed = behind.lstrip(" ")
    return closed.removeprefix(end) if closed.startswith(end) else behind


def refuse_rewriting(tokenizer: "PreTrainedTokenizerBase", authors: Sequence[str]) -> None:
    """Refuse a template that writes earlier turns otherwise than they were drawn.

    Some leave out what was thought before an answer once another message follows. The policy would
    be trained on conversations that nobody who uses its template ever shows it.

    Args:
        tokenizer: With or without a chat template.
        authors: `user`, `tool`: whose messages follow.

    Raises:
        UserError: It does, or it fails on such messages.

    """
    if not tokenizer.chat_template:
        return
    template = str(tokenizer.chat_template)
    said = [_SAID]
    if THINKING in template or THOUGHT in template:
        said.append(f"{THINKING}\n2 and 3\n{THOUGHT}\n\n{_SAID}")
    for author in authors:
        for text in said:
            turns = [*_answered(text), _as_turn(Told(author, _TOLD))]
            written = render_turns(tokenizer, turns, open_answer=True)
            if _TOLD not in written:
                raise UserError(
                    f"the tokenizer's chat template drops what a {author} says in an episode; use a"
                    " template that writes such messages, or an environment that speaks as a user"
                )
            if text not in written:
                raise UserError(
                    f"the tokenizer's chat template leaves out of earlier turns what was thought"
                    f" in them once a message of a {author} follows, so an episode cannot be"
                    " written as it was drawn; use a template that keeps all turns as they are"
                )


def _answered(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": _ASKED}, {"role": "assistant", "content": text}]


def _as_turn(message: Told) -> dict[str, Any]:
    author, _, name = message.author.partition(":")
    return {"role": author, "content": message.text, **({"name": name} if name else {})}
