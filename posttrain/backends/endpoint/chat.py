"""Text in, text out: what teachers and judges are asked."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from posttrain.backends.endpoint.client import Asked, Client


@dataclass(frozen=True)
class Question:
    """One message to a model, and what its reply may be like.

    `before` is what was said before it: pairs of role, `user` or `assistant`, and text. Equal
    questions have one reply; `draw` asks for another one of the same question.
    """

    text: str
    system: str = ""
    temperature: float = 0.0
    max_tokens: int = 512
    seed: int = 0
    draw: int = 0
    before: tuple[tuple[str, str], ...] = ()


def reply_to(
    client: Client,
    questions: Sequence[Question],
    *,
    report: Callable[[int], None] = lambda _done: None,
) -> list[str]:
    """The model's replies, in order; an empty one where it had nothing to say."""
    asked = [Asked(_body(question), str(question.draw)) for question in questions]
    return client.ask("chat/completions", asked, _text_of_answer, report=report)


def _body(question: Question) -> dict[str, Any]:
    system = [{"role": "system", "content": question.system}] if question.system else []
    before = [{"role": role, "content": text} for role, text in question.before]
    return {
        "messages": [*system, *before, {"role": "user", "content": question.text}],
        "temperature": question.temperature,
        "max_tokens": question.max_tokens,
        "seed": question.seed,
    }


def _text_of_answer(answer: Any) -> str:
    content = answer["choices"][0]["message"]["content"]
    if not isinstance(content, str | None):
        raise TypeError("the message's content is no text")
    return content or ""
