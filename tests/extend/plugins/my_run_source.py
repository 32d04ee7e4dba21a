"""A run source reads runs of a tracker, of which curves are drawn again. In the recipe:

import_curves:
  task: tasks.import_curves
  source: {kind: straight, count: 4}
  metrics: {loss: slope}
"""

from typing import Literal

from posttrain.data.run_sources.base import FetchedRun, RunSource


class Straight(RunSource):
    """Make runs whose metrics are straight lines."""

    kind: Literal["straight"] = "straight"
    count: int = 2
    """How many runs."""

    def runs(self, metrics, where, file):
        """Draw each line through its first two steps."""
        return [
            FetchedRun(f"r{k}", f"run {k}", {}, {m: {1: k, 2: 2.0 * k} for m in metrics})
            for k in range(1, self.count + 1)
        ]


PARTS = {"run_source": {"straight": Straight}}
