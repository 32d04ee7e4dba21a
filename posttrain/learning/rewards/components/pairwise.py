"""A model behind an endpoint says which of two answers is better, asked in both orders."""

import re
from collections.abc import Sequence
from itertools import combinations
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from posttrain.backends.endpoint.config import Endpoint, filled
from posttrain.learning.rewards.components.base import Answers, Component, Inquiry

_TEMPLATE = """\
Question:
{prompt}

Answer A:
{first}

Answer B:
{second}

Which answer is better? Say in one sentence why. Then write a last line `Better: A`, `Better: B` \
or `Better: tie`."""
_WON = {"A": 1.0, "B": 0.0, "TIE": 0.5}


class PairwiseComponent(Component):
    """The share of comparisons that an answer wins, against its group or the reference answer.

    Every pair is asked in both orders, so that a judge who likes what stands first gives both a
    half; a tie is half a win. A reply that names neither is no comparison, and an answer without
    any comparison is not judged. Equal texts are a tie, and nobody is asked.
    """

    SOURCE = "win rates within a batch as SPO, arXiv 2401.04056; both orders as arXiv 2306.05685"
    SCOPE: ClassVar[Literal["group"]] = "group"

    kind: Literal["pairwise"] = "pairwise"
    endpoint: Endpoint
    """Where the model answers."""
    against: Literal["group", "reference"] = "group"
    """Every other answer of the group, or the problem's reference answer alone."""
    template: str = _TEMPLATE
    """What is asked; {prompt}, {first} and {second} are filled in."""
    pattern: str = r"(?i)better:\s*(A|B|tie)\b"
    """Regular expression whose one group is A, B or tie; its last match in the reply counts."""
    temperature: float = Field(default=0.0, ge=0.0)
    """Sampling temperature of the judge."""
    max_tokens: int = Field(default=512, ge=1)
    """Longest reply, in tokens."""

    @model_validator(mode="after")
    def _can_compare(self) -> Self:
        for name in ("{first}", "{second}"):
            if name not in self.template:
                raise ValueError(f"the template must contain {name}, one of the two answers")
        try:
            groups = re.compile(self.pattern).groups
        except re.error as error:
            raise ValueError(f"the pattern is no regular expression: {error}") from None
        if groups != 1:
            raise ValueError(f"the pattern must have one group, A, B or tie, but has {groups}")
        return self

    def score(self, group: Answers, known: Inquiry) -> Sequence[float | None]:
        """Ask about one group; see `Component.score`."""
        return self.score_all([group], known)[0]

    def score_all(
        self,
        groups: Sequence[Answers],
        known: Inquiry,  # noqa: ARG002 - the endpoint is asked
    ) -> Sequence[Sequence[float | None]]:
        """Ask about all pairs of all groups at once; see `Component.score_all`."""
        from posttrain.backends.endpoint.chat import Question, reply_to
        from posttrain.backends.endpoint.client import open_client

        asked = [(group, first, second) for group in groups for first, second in self._pairs(group)]
        texts = dict.fromkeys(
            self._filled(group, *order)
            for group, first, second in asked
            for order in ((first, second), (second, first))
            if first != second
        )
        questions = [
            Question(text=text, temperature=self.temperature, max_tokens=self.max_tokens)
            for text in texts
        ]
        replies = reply_to(open_client(self.endpoint), questions) if questions else []
        won = {text: self.winner(reply) for text, reply in zip(texts, replies, strict=True)}
        return [self._rates(group, won) for group in groups]

    def winner(self, reply: str) -> float | None:
        """Return 1 where the first answer won, 0 where the second did, 0.5 for a tie; else None."""
        found = re.findall(self.pattern, reply)
        return _WON.get(found[-1].upper()) if found else None

    def _pairs(self, group: Answers) -> list[tuple[str, str]]:
        if self.against == "reference":
            return [(text, group.problem.answer) for text in group.texts]
        return list(combinations(group.texts, 2))

    def _filled(self, group: Answers, first: str, second: str) -> str:
        return filled(self.template, prompt=group.problem.prompt, first=first, second=second)

    def _rates(self, group: Answers, won: dict[str, float | None]) -> list[float | None]:
        others = [
            [group.problem.answer]
            if self.against == "reference"
            else [*group.texts[:place], *group.texts[place + 1 :]]
            for place in range(len(group.texts))
        ]
        return [
            _mean([each for other in rest for each in self._of_pair(group, text, other, won)])
            for text, rest in zip(group.texts, others, strict=True)
        ]

    def _of_pair(
        self, group: Answers, text: str, other: str, won: dict[str, float | None]
    ) -> list[float]:
        """What one answer won against another, in either order; empty where nobody could say."""
        if text == other:
            return [0.5, 0.5]
        first = won[self._filled(group, text, other)]
        second = won[self._filled(group, other, text)]
        found = [first, None if second is None else 1.0 - second]
        return [each for each in found if each is not None]


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
