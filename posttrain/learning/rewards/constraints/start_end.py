"""How a text begins and ends."""

from typing import Literal

from pydantic import Field

from posttrain.learning.rewards.constraints.base import Constraint


class EndPhrase(Constraint):
    """Ask for a phrase at the end."""

    kind: Literal["startend:end_checker"] = "startend:end_checker"
    end_phrase: str = Field(min_length=1)
    """The phrase, in upper or lower case; a quotation mark may follow."""

    def followed(self, text: str) -> bool:
        """Look how the text ends; see `Constraint.followed`."""
        return text.strip().strip('"').lower().endswith(self.end_phrase.strip().lower())


class Quotation(Constraint):
    """Ask for double quotation marks around the whole text."""

    kind: Literal["startend:quotation"] = "startend:quotation"

    def followed(self, text: str) -> bool:
        """Look at both ends; see `Constraint.followed`."""
        text = text.strip()
        return len(text) > 1 and text[0] == text[-1] == '"'
