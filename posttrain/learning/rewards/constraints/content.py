"""What a text has to have: placeholders, a postscript."""

import re
from typing import Literal

from pydantic import Field

from posttrain.learning.rewards.constraints.base import Constraint

_POSTSCRIPTS = {"P.P.S": r"p\.\s?p\.\s?s", "P.S.": r"p\.\s?s\."}


class Placeholders(Constraint):
    """Ask for placeholders in square brackets, such as [address]."""

    kind: Literal["detectable_content:number_placeholders"] = (
        "detectable_content:number_placeholders"
    )
    num_placeholders: int = Field(ge=0)
    """At least so many."""

    def followed(self, text: str) -> bool:
        """Count them; see `Constraint.followed`."""
        return len(re.findall(r"\[[^\]\n]*\]", text)) >= self.num_placeholders


class Postscript(Constraint):
    """Ask for a postscript."""

    kind: Literal["detectable_content:postscript"] = "detectable_content:postscript"
    postscript_marker: str = Field(min_length=1)
    """What it begins with, in upper or lower case, such as P.S. or P.P.S."""

    def followed(self, text: str) -> bool:
        """Look for the marker; see `Constraint.followed`."""
        marker = self.postscript_marker.strip()
        pattern = _POSTSCRIPTS.get(marker, re.escape(marker.lower()))
        return re.search(pattern, text.lower()) is not None
