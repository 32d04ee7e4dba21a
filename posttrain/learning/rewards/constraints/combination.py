"""What a text is made of: two answers, or the question and its answer."""

from typing import Literal

from pydantic import Field

from posttrain.learning.rewards.constraints.base import Constraint


class TwoResponses(Constraint):
    """Ask for two different answers, parted by six asterisks."""

    kind: Literal["combination:two_responses"] = "combination:two_responses"

    def followed(self, text: str) -> bool:
        """Compare the two: the first and the last part may be empty; see `Constraint.followed`."""
        parts = [each.strip() for each in text.split("******")]
        filled = [each for each in parts if each]
        return all(parts[1:-1]) and len(filled) == 2 and filled[0] != filled[1]  # noqa: PLR2004


class RepeatPrompt(Constraint):
    """Ask for the question word for word, before the answer."""

    kind: Literal["combination:repeat_prompt"] = "combination:repeat_prompt"
    prompt_to_repeat: str = Field(min_length=1)
    """The question; upper and lower case do not matter."""

    def followed(self, text: str) -> bool:
        """Look how the text begins; see `Constraint.followed`."""
        return text.strip().lower().startswith(self.prompt_to_repeat.strip().lower())
