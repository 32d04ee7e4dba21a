"""Which words stand in a text, and how often."""

import re
from typing import Literal

from pydantic import Field

from posttrain.learning.rewards.constraints.base import Constraint, Relation, within


class KeywordsExist(Constraint):
    """Ask for words, in upper or lower case."""

    kind: Literal["keywords:existence"] = "keywords:existence"
    keywords: tuple[str, ...] = Field(min_length=1)
    """All of them; they are taken as they are, not as patterns."""

    def followed(self, text: str) -> bool:
        """Look for each; see `Constraint.followed`."""
        return all(each.lower() in text.lower() for each in self.keywords)


class KeywordFrequency(Constraint):
    """Ask how often a word stands in a text, in upper or lower case."""

    kind: Literal["keywords:frequency"] = "keywords:frequency"
    keyword: str = Field(min_length=1)
    """The word; inside of others it counts too."""
    frequency: int = Field(ge=0)
    """How often."""
    relation: Relation
    """Whether that is the least, or too much."""

    def followed(self, text: str) -> bool:
        """Count it; see `Constraint.followed`."""
        count = text.lower().count(self.keyword.strip().lower())
        return within(count, self.relation, self.frequency)


class ForbiddenWords(Constraint):
    """Forbid words; inside of others they are allowed."""

    kind: Literal["keywords:forbidden_words"] = "keywords:forbidden_words"
    forbidden_words: tuple[str, ...] = Field(min_length=1)
    """None of them, in upper or lower case."""

    def followed(self, text: str) -> bool:
        """Look for each as a whole word; see `Constraint.followed`."""
        words = (re.escape(word) for word in self.forbidden_words)
        return not any(re.search(rf"\b{word}\b", text, re.IGNORECASE) for word in words)


class LetterFrequency(Constraint):
    """Ask how often a letter stands in a text, in upper or lower case."""

    kind: Literal["keywords:letter_frequency"] = "keywords:letter_frequency"
    letter: str = Field(min_length=1, max_length=1)
    """The letter."""
    let_frequency: int = Field(ge=0)
    """How often."""
    let_relation: Relation
    """Whether that is the least, or too much."""

    def followed(self, text: str) -> bool:
        """Count it; see `Constraint.followed`."""
        return within(
            text.lower().count(self.letter.lower()), self.let_relation, self.let_frequency
        )
