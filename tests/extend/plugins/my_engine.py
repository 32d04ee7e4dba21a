"""An engine draws tokens from a policy. In the recipe:

probe:
  engine: {kind: small_batches, most: 8}
"""

from typing import Literal

from posttrain.learning.rollouts.engines.engine import Engine
from posttrain.learning.rollouts.engines.kinds.torch import TorchEngine


class SmallBatches(Engine):
    """Draw few sequences at a time, by the engine of posttrain."""

    kind: Literal["small_batches"] = "small_batches"
    most: int
    """Sequences that are drawn together."""

    def open(self, policy, *, batch_size):
        """Open the other engine for less."""
        return TorchEngine().open(policy, batch_size=min(self.most, batch_size))


PARTS = {"engine": {"small_batches": SmallBatches}}
