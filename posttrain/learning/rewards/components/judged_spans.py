"""A model behind an endpoint quotes what is good and what is poor in an answer, token by token."""

import json
from collections.abc import Sequence
from itertools import compress
from math import inf
from typing import ClassVar, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from posttrain.backends.endpoint.config import Endpoint, filled
from posttrain.learning.rewards.components.base import Answers, Component, Inquiry, Range
from posttrain.learning.rewards.components.critiqued_spans import (
    laid_on_tokens,
    token_ends,
    tokenizer_of,
)

_TEMPLATE = """\
Question:
{prompt}

Answer:
{completion}

Say in a paragraph what is good and what is poor in the answer. Then quote the few phrases of it \
that matter most, letter by letter. Reply with one JSON object and nothing else:
{"textual_feedback": "...", "good_spans": ["..."], "poor_spans": ["..."]}"""


class QuotedSpans(NamedTuple):
    """What a critique quotes of an answer."""

    found: tuple[tuple[int, int, bool], ...]
    """Begin and end in the text, in characters, and whether it is good; where two overlap, the
    first counts."""
    lost: int
    """Quotes that do not stand in the answer."""


class JudgedSpansComponent(Component):
    """`weight` at each token of what a model quotes as good, `-weight` at what it quotes as poor.

    It is asked for JSON with the lists `good_spans` and `poor_spans`. A quote is searched for as it
    is: one that stands in the answer several times means the first place that no equal quote before
    it took, and one in both lists is poor. Every token that lies in it, at least in part, has its
    number. A quote that is not in the answer pays nobody (the component `unaligned_spans` counts
    them), and a reply that is no such JSON does not judge the answer. Equal questions are asked
    once in a project. Take it with an advantage by tokens (`gae` or `returns`).
    """

    SOURCE = (
        "Text2Grad, arXiv 2505.22338, section 3; microsoft/Text2Grad at 3d6f904,"
        " rm_data_anno/ultrafeedback/dual_feedback_annotation_RM.py (format), and at 0786570,"
        " nl_gradiant_policy_optimization/ultrafeedback/train_ultrafeedback.py"
        " (process_response_with_spans), without its search for similar phrases"
    )
    SCOPE: ClassVar[Literal["token"]] = "token"
    RANGE: ClassVar[Range] = (-inf, inf)
    NEEDS: ClassVar[frozenset[str]] = frozenset({"tokens"})

    kind: Literal["judged_spans"] = "judged_spans"
    endpoint: Endpoint
    """Where the model answers."""
    template: str = _TEMPLATE
    """What is asked; {prompt}, {answer} (the reference) and {completion} are filled in."""
    weight: float = Field(default=1.0, gt=0.0)
    """What a token that is quoted is paid or fined."""
    temperature: float = Field(default=0.0, ge=0.0)
    """Sampling temperature of the model."""
    max_tokens: int = Field(default=768, ge=1)
    """Longest reply, in tokens."""

    @model_validator(mode="after")
    def _shows_the_answer(self) -> Self:
        if "{completion}" not in self.template:
            raise ValueError("the template must contain {completion}, the text to criticize")
        return self

    def score_tokens(
        self, groups: Sequence[Answers], known: Inquiry
    ) -> Sequence[Sequence[Sequence[float] | None]]:
        """Ask about all answers at once, and find what is quoted; see `Component.score_tokens`."""
        tokenizer = tokenizer_of(known, self.kind)
        paid: list[list[list[float] | None]] = []
        for group, quoted in zip(groups, self.quoted(groups), strict=True):
            paid.append([])
            for place, spans in enumerate(quoted):
                ids = [*compress(group.token_ids[place], group.drawn[place])]
                ends = token_ends(tokenizer, ids)
                # Backwards: of two that overlap the first is written last.
                paid[-1].append(
                    None
                    if spans is None
                    else laid_on_tokens(reversed(spans.found), ends, self.weight)
                )
        return paid

    def quoted(self, groups: Sequence[Answers]) -> list[list[QuotedSpans | None]]:
        """Ask the model about every answer.

        Args:
            groups: P problems, each with its G answers.

        Returns:
            What it quotes, ``[P][G]``; None where the reply is no critique.

        """
        from posttrain.backends.endpoint.chat import Question, reply_to
        from posttrain.backends.endpoint.client import open_client

        asked = [
            [
                filled(
                    self.template,
                    prompt=group.problem.prompt,
                    answer=group.problem.answer,
                    completion=text,
                )
                for text in group.texts
            ]
            for group in groups
        ]
        texts = dict.fromkeys(text for each in asked for text in each)
        questions = [
            Question(text=text, temperature=self.temperature, max_tokens=self.max_tokens)
            for text in texts
        ]
        replies = reply_to(open_client(self.endpoint), questions) if questions else []
        said = dict(zip(texts, replies, strict=True))
        return [
            [quoted_spans(said[asking], text) for asking, text in zip(each, g.texts, strict=True)]
            for each, g in zip(asked, groups, strict=True)
        ]


def quoted_spans(reply: str, text: str) -> QuotedSpans | None:
    r"""Read a critique, and find what it quotes.

    >>> quoted_spans('{"good_spans": ["a b"], "poor_spans": ["c", "d"]}', "a b c")
    QuotedSpans(found=((0, 3, True), (4, 5, False)), lost=1)

    Args:
        reply: With a JSON object in it, from its first brace to its last.
        text: The answer.

    Returns:
        The quotes; None where the reply has no lists of texts.

    """
    try:
        said = json.loads(reply[reply.find("{") : reply.rfind("}") + 1])
        lists = [said["good_spans"], said["poor_spans"]]
    except (ValueError, LookupError, TypeError):
        return None
    if not all(isinstance(each, list) and all(isinstance(q, str) for q in each) for each in lists):
        return None
    good, poor = ([quote.strip() for quote in each if quote.strip()] for each in lists)
    quotes = [*((q, True) for q in good if q not in poor), *((q, False) for q in poor)]
    found: list[tuple[int, int, bool]] = []
    after: dict[str, int] = {}
    for quote, is_good in quotes:
        begin = text.find(quote, after.get(quote, 0))
        if begin >= 0:
            after[quote] = begin + len(quote)
            found.append((begin, after[quote], is_good))
    return QuotedSpans(tuple(found), len(quotes) - len(found))
