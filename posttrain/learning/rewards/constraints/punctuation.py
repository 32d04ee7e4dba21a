"""Which punctuation a text may have."""

from typing import Literal

from posttrain.learning.rewards.constraints.base import Constraint


class NoComma(Constraint):
    """Forbid commas."""

    kind: Literal["punctuation:no_comma"] = "punctuation:no_comma"

    def followed(self, text: str) -> bool:
        """Look for one; see `Constraint.followed`."""
        return "," not in text
