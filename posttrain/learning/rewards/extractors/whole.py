"""The answer is the whole text."""

from typing import Literal

from posttrain.learning.rewards.extractors.base import Extractor


class WholeAnswer(Extractor):
    """Take the whole text, trimmed.

    Source: own.
    """

    kind: Literal["whole"] = "whole"

    def extract(self, text: str) -> str | None:
        """Take all of it; see `Extractor.extract`."""
        return text.strip() or None

    def place(self) -> str:
        """Say that all of it counts."""
        return "in the whole text"
