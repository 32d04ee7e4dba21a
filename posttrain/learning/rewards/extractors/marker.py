"""The answer stands behind a marker that starts a line, as in GSM8K."""

from typing import Literal

from pydantic import Field

from posttrain.learning.rewards.extractors.base import Extractor
from posttrain.learning.rewards.score import MARKER, final_answer


class MarkerAnswer(Extractor):
    """Take what stands behind the marker on the last line that starts with it."""

    SOURCE = "GSM8K, arXiv:2110.14168: solutions end with a line '#### answer'"

    kind: Literal["marker"] = "marker"
    marker: str = Field(default=MARKER, min_length=1)
    """What a line with the answer starts with."""

    def extract(self, text: str) -> str | None:
        """Look from the last line up; see `Extractor.extract`."""
        return final_answer(text, marker=self.marker)

    def place(self) -> str:
        """Name the marker."""
        return f"on a line that starts with '{self.marker}'"
