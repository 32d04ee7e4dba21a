"""What a chat template leaves out of a conversation: found by writing it with and without a part.

A template writes what it knows of. One that knows nothing of tools writes a turn that only calls
one as no text at all, so that a model would learn to end its turn at once.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from posttrain.data.contexts import Message, PromptContext
from posttrain.data.templates import render_turns
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Tools = Sequence[Mapping[str, Any]]

_CALL = {"type": "function", "function": {"name": "add", "arguments": {"a": 2, "b": 3}}}
_TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
_ASKED = {"role": "user", "content": "2 + 3 ="}
_SAID = {"role": "assistant", "content": "5"}
_PROBES: Sequence[tuple[Sequence[Message], Tools]] = (
    ([{"role": "system", "content": "Be brief."}, _ASKED, _SAID], ()),
    (
        [
            _ASKED,
            {"role": "assistant", "content": "I add.", "tool_calls": [_CALL]},
            {"role": "tool", "content": "five"},
            _SAID,
        ],
        (_TOOL,),
    ),
)
"""Conversations that have every part once."""


class _Part(NamedTuple):
    """A part of a conversation, and the conversation without it."""

    name: str
    messages: Sequence[Message]
    tools: Tools


class LeftOut:
    """Tells what of a conversation a tokenizer's chat template leaves out.

    Which kinds of parts it may leave out is tried once; only conversations that have one of these
    are written out.

    Args:
        tokenizer: With the chat template, if there is one.

    """

    def __init__(self, tokenizer: "PreTrainedTokenizerBase") -> None:
        self._tokenizer = tokenizer
        self._suspects = frozenset(
            name for messages, tools in _PROBES for name in self._suspected(messages, tools)
        )

    def of(self, prompt: str, context: PromptContext, answer: str) -> str | None:
        """Find the first part of a row that leaves no trace in what the template writes.

        Args:
            prompt: What is asked; empty where the text answers nothing, and no template is used.
            context: What is said around it.
            answer: What follows, beside the calls of `context.answer_calls`.

        Returns:
            The reason, with the remedy; None where all of it is written, or the template fails on
            the conversation, which the stage that learns it says.

        """
        if not prompt or not self._suspects:
            return None
        said: dict[str, Any] = {"role": "assistant", "content": answer}
        if context.answer_calls:
            said["tool_calls"] = list(context.answer_calls)
        messages = [*context.messages(prompt), said]
        parts = [each for each in _parts(messages, context.tools) if each.name in self._suspects]
        left_out = self._first_left_out(messages, context.tools, parts) if parts else None
        if left_out is None:
            return None
        who = "the chat template" if self._tokenizer.chat_template else "a model without a template"
        return f"{who} does not write {left_out}; use a template that does"

    def _first_left_out(
        self, messages: Sequence[Message], tools: Tools, parts: Sequence[_Part]
    ) -> str | None:
        if not self._tokenizer.chat_template:
            return parts[0].name
        whole = self._written(messages, tools)
        if whole is None:
            return None
        gone = (each.name for each in parts if self._written(each.messages, each.tools) == whole)
        return next(gone, None)

    def _suspected(self, messages: Sequence[Message], tools: Tools) -> Iterator[str]:
        """The kinds of parts of a probe that are left out; all where the template fails on it."""
        if not self._tokenizer.chat_template:
            # Every message is its text and a newline.
            yield from (each.name for each in _parts(messages, tools) if "tools" in each.name)
            return
        whole = self._written(messages, tools)
        for each in _parts(messages, tools):
            if whole is None or self._written(each.messages, each.tools) == whole:
                yield each.name

    def _written(self, messages: Sequence[Message], tools: Tools) -> str | None:
        """The text; None where the template fails."""
        try:
            return render_turns(self._tokenizer, messages, tools=tools, open_answer=False)
        except UserError:
            return None


def _parts(messages: Sequence[Message], tools: Tools) -> Iterator[_Part]:
    """Everything that is said in a conversation, each with what is left without it."""
    if tools:
        yield _Part("the list of tools", messages, ())
    for place, message in enumerate(messages):
        role, calls = message["role"], message.get("tool_calls")
        if calls:
            silent = {name: value for name, value in message.items() if name != "tool_calls"}
            yield _Part("the assistant's calls of tools", _replaced(messages, place, silent), tools)
        if str(message.get("content") or "").strip():
            beside = " beside a call" if calls else ""
            empty = {**message, "content": ""}
            yield _Part(f"what the {role} says{beside}", _replaced(messages, place, empty), tools)


def _replaced(messages: Sequence[Message], place: int, message: Message) -> Sequence[Message]:
    return [*messages[:place], message, *messages[place + 1 :]]
