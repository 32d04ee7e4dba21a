"""A text has the form that a pattern says."""

import re
from collections.abc import Sequence
from typing import Literal, Self

from pydantic import model_validator

from posttrain.learning.rewards.components.base import Answers, Component, Inquiry


class FormatComponent(Component):
    """1 for a text that matches a regular expression as a whole, else 0.

    Source: DeepSeek-R1, arXiv 2501.12948 (format rewards).
    """

    kind: Literal["format"] = "format"
    pattern: str = r"(?s)\s*<think>.*</think>\s*<answer>.*</answer>\s*"
    """Regular expression of the whole text; `.` stops at a line's end unless it says `(?s)`."""

    @model_validator(mode="after")
    def _compiles(self) -> Self:
        try:
            re.compile(self.pattern)
        except re.error as error:
            raise ValueError(f"the pattern is no regular expression: {error}") from None
        return self

    def score(self, group: Answers, known: Inquiry) -> Sequence[float | None]:  # noqa: ARG002 - text
        """Match the texts; see `Component.score`."""
        return [float(re.fullmatch(self.pattern, text) is not None) for text in group.texts]
