"""What stands around a problem's prompt: system prompt, few-shot rows, earlier turns, tools."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pydantic import Field

from posttrain.stage.config import StageConfig
from posttrain.stage.hashing import canonical_json

if TYPE_CHECKING:
    import polars as pl

LearnedTurns = Literal["last", "assistant"]
"""Which turns of a conversation bear loss: the completion, or all that the assistant said."""

Message = Mapping[str, Any]
"""One message as chat templates take it: `role`, `content`, and what else it has."""

THINKING, THOUGHT = "<think>", "</think>"
"""The tags between which models of DeepSeek-R1's and Qwen3's kind think before they answer."""


def without_thinking(text: str) -> str:
    """Leave out what a model thought before it answered, up to the last closing tag.

    >>> without_thinking("<think>2 and 3</think>5"), without_thinking("5")
    ('5', '5')

    """
    _, thought, answer = text.rpartition(THOUGHT)
    return answer.lstrip() if thought else text


class Shot(StageConfig):
    """A solved example that stands before the prompt."""

    prompt: str = Field(min_length=1)
    """What is asked."""
    answer: str = Field(min_length=1)
    """What was answered."""


class Turn(StageConfig):
    """A message before the prompt."""

    role: Literal["user", "assistant", "tool"]
    """Who speaks."""
    content: str = ""
    """What is said."""
    name: str = ""
    """Of the tool that answers, for templates that write it."""
    tool_calls: tuple[Mapping[str, Any], ...] = ()
    """Calls of tools that an assistant made, as chat templates take them."""
    weight: Literal[0, 1] = 1
    """0 for what bears no loss even where all that the assistant said does."""

    def said(self) -> dict[str, Any]:
        """Return it as the message that chat templates take."""
        given = self.model_dump(mode="json", exclude_defaults=True, exclude={"weight"})
        return given | {"content": self.content}


def turn_of(author: str, text: str) -> Turn:
    """Return the turn of somebody who is named as in an episode.

    >>> turn_of("tool:calculate", "408").name
    'calculate'

    Args:
        author: `assistant`, `user`, or `tool:NAME`.
        text: What is said.

    """
    role, _, name = author.partition(":")
    return Turn.parse({"role": role, "content": text, "name": name}, where="turn")


class PromptContext(StageConfig):
    """What is said before a prompt, and around it in its own message."""

    system: str = ""
    """System prompt; empty for none."""
    before: str = ""
    """Text before every prompt, in its message: a prior prompt."""
    after: str = ""
    """Text behind every prompt, in its message: how to answer."""
    shots: tuple[Shot, ...] = ()
    """Solved examples, as earlier turns."""
    turns: tuple[Turn, ...] = ()
    """The conversation so far, behind the examples; what was thought in it is not written."""
    between: tuple[Turn, ...] = ()
    """What stands between the prompt and its answer: calls of tools, and their results."""
    rejected_between: tuple[Turn, ...] | None = None
    """Of a pair of episodes, what stands in place of `between` before the rejected answer; null
    where both sides answer the same."""
    tools: tuple[Mapping[str, Any], ...] = ()
    """Tools that may be called, as JSON schemas."""
    answer_calls: tuple[Mapping[str, Any], ...] = ()
    """Calls of tools that the answer ends with, as chat templates take them."""

    def written(self) -> str:
        """Spell it as a row's `context`: JSON of what is not at its default, or nothing."""
        said = self.model_dump(mode="json", exclude_defaults=True)
        return canonical_json(said) if said else ""

    @classmethod
    def read(cls, written: str) -> "PromptContext":
        """Read what `written` spells."""
        return cls.parse(json.loads(written), where="context") if written else cls()

    def asking(self) -> "PromptContext":
        """Return what of it is asked: all but the calls of the answer."""
        return self.model_copy(update={"answer_calls": ()}) if self.answer_calls else self

    def of_rejected(self) -> "PromptContext":
        """Return what the rejected answer of a pair was given to."""
        if self.rejected_between is None:
            return self
        return self.model_copy(update={"between": self.rejected_between, "rejected_between": None})

    def with_row(self, row: "PromptContext") -> "PromptContext":
        """Let what a row states go before what its source states of all of them."""
        stated = row.model_dump(exclude_defaults=True)
        return self.model_copy(update={name: getattr(row, name) for name in stated})

    def message(self, prompt: str) -> str:
        """Return the prompt's own message, with what stands before and behind it."""
        return "\n".join(filter(None, [self.before, prompt, self.after]))

    def messages(self, prompt: str) -> list[Message]:
        """Return all messages up to the prompt's, in order.

        >>> PromptContext(system="Be brief.").messages("2 + 3 =")
        [{'role': 'system', 'content': 'Be brief.'}, {'role': 'user', 'content': '2 + 3 ='}]

        """
        asked = {"role": "user", "content": self.message(prompt)}
        return [*self._before(), asked, *(turn.said() for turn in self.between)]

    def answers(self) -> Iterator[int]:
        """Find what the assistant said in the conversation, and may say again.

        Yields:
            Places among `messages`. Left out are turns of weight 0, and earlier ones whose thinking
            is not written: they would teach to answer without it.

        """
        first = bool(self.system) + 2 * len(self.shots)
        for place, turn in enumerate(self.turns, first):
            if turn.role == "assistant" and turn.weight and THOUGHT not in turn.content:
                yield place
        for place, turn in enumerate(self.between, first + len(self.turns) + 1):
            if turn.role == "assistant" and turn.weight:
                yield place

    @property
    def calls_tools(self) -> bool:
        """True where tools may be called, or were."""
        said = (*self.turns, *self.between)
        called = self.answer_calls or any(turn.tool_calls for turn in said)
        return bool(self.tools or called)

    def _before(self) -> Iterator[Message]:
        if self.system:
            yield {"role": "system", "content": self.system}
        for shot in self.shots:
            yield {"role": "user", "content": self.message(shot.prompt)}
            yield {"role": "assistant", "content": shot.answer}
        for turn in self.turns:
            said = turn.said()
            thought = turn.role == "assistant"
            yield said | {"content": without_thinking(turn.content)} if thought else said


class PromptInContext(NamedTuple):
    """A prompt, and the context of its row."""

    text: str
    """What is asked."""
    context: PromptContext

    @classmethod
    def of(cls, prompt: "AnyPrompt") -> "PromptInContext":
        """Take a prompt that may be a plain text."""
        return cls(prompt, PromptContext()) if isinstance(prompt, str) else prompt


AnyPrompt = str | PromptInContext
"""A plain prompt, or one in its context."""


def in_context(texts: Sequence[str], contexts: Sequence[str]) -> list[AnyPrompt]:
    """Put prompts into the contexts of their rows.

    Args:
        texts: The prompts.
        contexts: The rows' `context`, as `PromptContext.written` spells it.

    Returns:
        One per row; a plain text where there is no context.

    """
    known: dict[str, PromptContext] = {}
    found: list[AnyPrompt] = []
    for text, written in zip(texts, contexts, strict=True):
        if not written:
            found.append(text)
            continue
        if written not in known:
            known[written] = PromptContext.read(written)
        found.append(PromptInContext(text, known[written]))
    return found


def prompt_keys(prompts: Sequence[AnyPrompt]) -> list[str]:
    """Return a text for each prompt that is equal for equal prompts in equal contexts."""
    return [
        each if isinstance(each, str) else each.text + each.context.asking().written()
        for each in prompts
    ]


def prompts_of(frame: "pl.DataFrame") -> list[AnyPrompt]:
    """Return the prompts of a table's rows, each in its context."""
    return in_context(frame["prompt"].to_list(), frame["context"].to_list())


def rejected_prompts_of(pairs: "pl.DataFrame") -> list[AnyPrompt]:
    """Return what the rejected answers of pairs were given to: mostly what the chosen ones were."""
    return [
        each if isinstance(each, str) else each._replace(context=each.context.of_rejected())
        for each in prompts_of(pairs)
    ]


def of_both_sides(chosen: str, rejected: str) -> str:
    """Join the contexts in which two answers to one problem were given.

    Args:
        chosen: Of the chosen answer, as `PromptContext.written` spells it.
        rejected: Of the rejected one, which may differ in what was said behind the prompt.

    Returns:
        The context of the pair.

    """
    if chosen == rejected:
        return chosen
    turns = PromptContext.read(rejected).between
    own = PromptContext.read(chosen)
    return own.model_copy(update={"rejected_between": turns}).written()
