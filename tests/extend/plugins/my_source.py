"""A source makes or reads problems. In the recipe:

synthesize:
  sources:
  - {kind: letters, name: letters, longest: 60, verifier: {kind: parity, answer: untrimmed}}
"""

from typing import Annotated, Literal

from posttrain.data.sources.base import Source, SourceRequest, SourceRows
from posttrain.stage.slots import InSlot, Part


class Letters(Source):
    """Ask for the number of letters of a word."""

    kind: Literal["letters"] = "letters"
    longest: int
    """Letters of the longest word."""
    verifier: Annotated[Part, InSlot("verifier")]
    """What scores the answers."""

    def read(self, request: SourceRequest) -> SourceRows:
        """Hold out every fourth word."""
        from posttrain.data.schemas import Problem

        rows = SourceRows()
        for number in range(1, self.longest + 1):
            prompt = f"{self.name} of {'ab' * (number // 2)}{'c' * (number % 2)}:"
            metadata = request.metadata_of(self.verifier)
            difficulty = 1 + number // 20
            kind = self.verifier.kind
            problem = Problem(self.name, prompt, str(number), difficulty, kind, metadata)
            (rows.train if number % 4 else rows.heldout).append(problem)
        return rows


PARTS = {"source": {"letters": Letters}}
