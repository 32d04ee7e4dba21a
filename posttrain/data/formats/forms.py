"""The forms that rows of others take here: what is said, what is preferred, what is asked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from posttrain.data.contexts import Message, PromptContext

_SYSTEM, _USER, _ASSISTANT = "system", "user", "assistant"
_KEPT = ("role", "content", "tool_calls")
"""What a turn before a prompt keeps of a message."""


class Unfit(Exception):
    """A row that is whole and still of no use; says why, as a reason to count."""


@dataclass(frozen=True)
class TaughtAnswer:
    """An answer to learn: what is asked, in its context, and what is said."""

    prompt: str
    context: PromptContext
    answer: str


@dataclass(frozen=True)
class JudgedAnswers:
    """Two answers of which one is better, or one alone that is good or bad.

    The text of the side that nobody wrote is empty.
    """

    prompt: str
    context: PromptContext
    chosen: str
    rejected: str
    chosen_score: float | None = None
    rejected_score: float | None = None
    weight: float = 1.0


class Form:
    """What a row becomes."""

    WHAT: ClassVar[str]
    """In the plural, for messages."""
    TEACHES: ClassVar[bool] = False
    """Whether there is an answer to learn."""
    JUDGES: ClassVar[bool] = False
    """Whether it says which answers are good, or better than others."""
    JUDGES_ALONE: ClassVar[bool] = False
    """Whether what it judges are single answers: a good one, or a bad one."""

    def taught(self) -> TaughtAnswer:
        """Give the answer to learn, where the form `TEACHES`.

        Raises:
            Unfit: There is none in this row, with the reason.

        """
        raise NotImplementedError

    def judged(self) -> JudgedAnswers:
        """Give the answers that are told apart, where the form `JUDGES`.

        Raises:
            Unfit: There are none in this row, with the reason.

        """
        raise NotImplementedError

    def plain(self) -> str:
        """Give the text, where the form neither teaches nor judges."""
        raise NotImplementedError


@dataclass(frozen=True)
class Conversation(Form):
    """Messages in order, as chat templates take them: a system prompt first, if there is one."""

    WHAT: ClassVar[str] = "conversations"
    TEACHES: ClassVar[bool] = True

    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...] = ()

    def taught(self) -> TaughtAnswer:
        """Cut off the last answer, to be learned; see `asked` for what stands before.

        Raises:
            Unfit: It does not end with an answer of the assistant's in words.

        """
        if not self.messages:
            raise Unfit("it has no messages")
        *before, last = self.messages
        if last["role"] != _ASSISTANT:
            raise Unfit(f"its last message is the {last['role']}'s, so there is no answer to learn")
        if last.get("tool_calls"):
            raise Unfit("it ends with the call of a tool, which is not learned yet")
        if not last["content"].strip():
            raise Unfit("its last answer is empty")
        prompt, context = replace(self, messages=tuple(before)).asked()
        return TaughtAnswer(prompt, context, last["content"].strip())

    def asked(self) -> tuple[str, PromptContext]:
        """Tell the last message, which asks, from what stands before it.

        Returns:
            The prompt and its context.

        Raises:
            Unfit: The user does not speak last, or a system prompt stands elsewhere than first.

        """
        system, turns = "", list(self.messages)
        if turns and turns[0]["role"] == _SYSTEM:
            system = str(turns.pop(0)["content"]).strip()
        if any(turn["role"] == _SYSTEM for turn in turns):
            raise Unfit("a system message stands in its middle")
        if not turns or turns[-1]["role"] != _USER:
            who = f"the {turns[-1]['role']}'s" if turns else "no one's"
            raise Unfit(f"the answer follows a message of {who}, and not of the user's")
        prompt = str(turns.pop()["content"]).strip()
        if not prompt:
            raise Unfit("its last question is empty")
        said = [{name: turn[name] for name in _KEPT if turn.get(name)} for turn in turns]
        return prompt, PromptContext(system=system, turns=tuple(said), tools=self.tools)  # type: ignore[arg-type]


@dataclass(frozen=True)
class PreferencePair(Form):
    """What was asked, and a better and a worse answer to it."""

    WHAT: ClassVar[str] = "preferences"
    JUDGES: ClassVar[bool] = True

    conversation: Conversation
    """Up to the question."""
    chosen: str
    rejected: str
    chosen_score: float | None = None
    rejected_score: float | None = None
    weight: float = 1.0

    def judged(self) -> JudgedAnswers:
        """Return both answers.

        Raises:
            Unfit: They are the same, or nobody asked.

        """
        if self.chosen == self.rejected:
            raise Unfit("both answers are the same")
        return JudgedAnswers(
            *self.conversation.asked(),
            self.chosen,
            self.rejected,
            self.chosen_score,
            self.rejected_score,
            self.weight,
        )


@dataclass(frozen=True)
class LabeledCompletion(Form):
    """What was asked, and one answer that is good or bad."""

    WHAT: ClassVar[str] = "labeled completions"
    JUDGES: ClassVar[bool] = True
    JUDGES_ALONE: ClassVar[bool] = True

    conversation: Conversation
    """Up to the question."""
    text: str
    good: bool

    def judged(self) -> JudgedAnswers:
        """Return the answer on its side.

        Raises:
            Unfit: Nobody asked.

        """
        sides = (self.text, "") if self.good else ("", self.text)
        return JudgedAnswers(*self.conversation.asked(), *sides)


@dataclass(frozen=True)
class AnsweredQuestion(Form):
    """A question with its answer, and perhaps a worked solution."""

    WHAT: ClassVar[str] = "questions with answers"
    TEACHES: ClassVar[bool] = True

    question: str
    answer: str
    solution: str = ""

    def taught(self) -> TaughtAnswer:
        """Teach the solution where there is one, else the answer."""
        return TaughtAnswer(self.question, PromptContext(), self.solution or self.answer)


@dataclass(frozen=True)
class PlainText(Form):
    """A text without a question."""

    WHAT: ClassVar[str] = "plain texts"

    text: str

    def plain(self) -> str:
        """Return the text."""
        return self.text


def user_asks(prompt: str, system: str = "") -> Conversation:
    """Begin a conversation.

    Args:
        prompt: What the user asks.
        system: System prompt; empty for none.

    Returns:
        The conversation up to the question.

    """
    first: Sequence[Message] = [{"role": _SYSTEM, "content": system}] if system else []
    return Conversation((*first, {"role": _USER, "content": prompt}))
