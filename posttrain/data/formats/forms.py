"""The forms that rows of others take here: what is said, what is preferred, what is asked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from posttrain.data.contexts import Message, PromptContext, Turn

_SYSTEM, _USER, _ASSISTANT, _TOOL = "system", "user", "assistant", "tool"
_KEPT = ("role", "content", "tool_calls")
"""What a turn keeps of a message, beside a weight of 0."""


class Unfit(Exception):
    """A row that is whole and still of no use; says why, as a reason to count."""


@dataclass(frozen=True)
class TaughtAnswer:
    """An answer to learn: what is asked, in its context, and what is said."""

    prompt: str
    """Empty where the text answers nothing."""
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


@dataclass(frozen=True)
class Conversation(Form):
    """Messages in order, as chat templates take them: a system prompt first, if there is one."""

    WHAT: ClassVar[str] = "conversations"
    TEACHES: ClassVar[bool] = True

    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...] = ()

    def taught(self) -> TaughtAnswer:
        """Cut off the last answer, to be learned; see `asked` for what stands before.

        What follows the last answer that is to be learned, as its weight says, is left out.

        Raises:
            Unfit: It does not end with what the assistant says, or calls.

        """
        if not self.messages:
            raise Unfit("it has no messages")
        *before, last = self.messages
        while before and last["role"] == _ASSISTANT and not last.get("weight", 1):
            answers = [n for n, each in enumerate(before) if each["role"] == _ASSISTANT]
            if not answers:
                raise Unfit("all that the assistant says has weight 0")
            *before, last = before[: answers[-1] + 1]
        if last["role"] != _ASSISTANT:
            raise Unfit(f"its last message is the {last['role']}'s, so there is no answer to learn")
        calls = tuple(last.get("tool_calls", ()))
        if not calls and not last["content"].strip():
            raise Unfit("its last answer is empty")
        prompt, context = replace(self, messages=tuple(before)).asked()
        if calls:
            context = context.model_copy(update={"answer_calls": calls})
        return TaughtAnswer(prompt, context, last["content"].strip())

    def asked(self) -> tuple[str, PromptContext]:
        """Tell the last message, which asks, from what stands before it.

        Returns:
            The prompt and its context.

        Raises:
            Unfit: Neither the user nor a tool speaks last, nobody asks, or a system prompt stands
                elsewhere than first.

        """
        system, turns = "", list(self.messages)
        if turns and turns[0]["role"] == _SYSTEM:
            system = str(turns.pop(0)["content"]).strip()
        if any(turn["role"] == _SYSTEM for turn in turns):
            raise Unfit("a system message stands in its middle")
        asking = [place for place, turn in enumerate(turns) if turn["role"] == _USER]
        if not asking or turns[-1]["role"] not in (_USER, _TOOL):
            who = f"the {turns[-1]['role']}'s" if turns else "no one's"
            raise Unfit(f"the answer follows a message of {who}, and not of the user's")
        prompt = str(turns[asking[-1]]["content"]).strip()
        if not prompt:
            raise Unfit("its last question is empty")
        said = [_turn(turn) for turn in turns]
        before, between = said[: asking[-1]], said[asking[-1] + 1 :]
        return prompt, PromptContext(
            system=system, turns=tuple(before), between=tuple(between), tools=self.tools
        )


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
    """A text without a question: all of it is learned."""

    WHAT: ClassVar[str] = "plain texts"
    TEACHES: ClassVar[bool] = True

    text: str

    def taught(self) -> TaughtAnswer:
        """Teach the text, which answers nothing.

        Raises:
            Unfit: It is empty.

        """
        if not self.text:
            raise Unfit("its text is empty")
        return TaughtAnswer("", PromptContext(), self.text)


def _turn(message: Message) -> Turn:
    kept = {name: message[name] for name in _KEPT if message.get(name)}
    return Turn(**kept, weight=int(bool(message.get("weight", 1))))  # type: ignore[arg-type]


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
