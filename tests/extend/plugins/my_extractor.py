"""An extractor finds the answer in a text; a verifier that compares takes one:

synthesize:
  sources:
  - {kind: letters, name: letters, longest: 60, verifier: {kind: parity, answer: untrimmed}}
"""

from typing import Literal

from posttrain.learning.rewards.extractors.base import Extractor


class Untrimmed(Extractor):
    """Take the whole text, blanks at its ends too."""

    kind: Literal["untrimmed"] = "untrimmed"

    def extract(self, text: str) -> str | None:
        """Return the text; None would say that it states no answer."""
        return text


PARTS = {"extractor": {"untrimmed": Untrimmed}}
