"""A pair builder sets better samples of a problem against worse ones. In the recipe:

preference:
  pairs: {builder: shortest}
"""

from collections.abc import Sequence
from typing import Literal

from posttrain.data.pair_builders.base import Chosen, PairBuilder, PairCandidate


class Shortest(PairBuilder):
    """Prefer the shortest sample to the longest one."""

    kind: Literal["shortest"] = "shortest"

    def of_problem(self, samples: Sequence[PairCandidate], limit: int) -> list[Chosen]:
        """Give one pair, where the samples differ in length."""
        ordered = sorted(samples, key=lambda sample: len(sample.text))
        differ = len(ordered[0].text) < len(ordered[-1].text)
        return [(ordered[0], ordered[-1])] if differ else []


PARTS = {"pair_builder": {"shortest": Shortest}}
