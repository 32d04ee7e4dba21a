"""The answer is what a regular expression finds."""

import re
from typing import Literal, Self

from pydantic import model_validator

from posttrain.learning.rewards.extractors.base import Extractor


class RegexAnswer(Extractor):
    """Take the one group of the last match of a regular expression, or the whole match.

    Source: own; the expressions of Python's `re`.
    """

    kind: Literal["regex"] = "regex"
    pattern: str
    """Regular expression of Python with at most one group; `(?s)` lets a dot match line ends."""

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        try:
            groups = re.compile(self.pattern).groups
        except re.error as error:
            raise ValueError(f"the pattern is no regular expression: {error}") from None
        if groups > 1:
            raise ValueError(
                f"the pattern has {groups} groups, and one is the answer; write the others as (?:)"
            )
        return self

    def extract(self, text: str) -> str | None:
        """Take the last match; see `Extractor.extract`."""
        found = re.findall(self.pattern, text)
        return found[-1].strip() or None if found else None

    def place(self) -> str:
        """Name the expression."""
        return f"by the pattern {self.pattern!r}"
