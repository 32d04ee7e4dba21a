"""The answer is the last line that is not empty."""

from typing import Literal

from posttrain.learning.rewards.extractors.base import Extractor


class LastLineAnswer(Extractor):
    """Take the last line that is not empty.

    Source: own.
    """

    kind: Literal["last_line"] = "last_line"

    def extract(self, text: str) -> str | None:
        """Look from the last line up; see `Extractor.extract`."""
        return next((line for each in text.splitlines()[::-1] if (line := each.strip())), None)

    def place(self) -> str:
        """Name the line."""
        return "on the last line"
