"""A pair oracle says how likely one answer is better than another one. In the recipe:

rl:
  reward:
    components: {correct: verifier, liked: {kind: win_rate, oracle: {kind: shorter, by: 2.0}}}
"""

from collections.abc import Mapping, Sequence
from typing import Literal

from posttrain.learning.rewards.components.oracles.base import PairOracle


class Shorter(PairOracle):
    """Prefer the shorter answer, the surer the more characters they differ by."""

    kind: Literal["shorter"] = "shorter"
    by: float = 1.0
    """Characters that make one answer e times as likely the better one."""

    def prefers(
        self, problem, pairs: Sequence[tuple[str, str]], scores: Mapping[str, float | None]
    ) -> list[float | None]:
        """Compute `1 / (1 + exp((first - second) / by))` of the two lengths."""
        gaps = [(len(first) - len(second)) / self.by for first, second in pairs]
        return [1 / (1 + 2.718281828 ** max(-50.0, min(50.0, gap))) for gap in gaps]


PARTS = {"pair_oracle": {"shorter": Shorter}}
