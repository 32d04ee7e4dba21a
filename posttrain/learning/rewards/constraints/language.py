"""In which language a text is, and in which case."""

import re
from typing import ClassVar, Literal

from pydantic import Field

from posttrain.learning.rewards.constraints.base import Constraint, Relation, within
from posttrain.stage.errors import UserError
from posttrain.stage.extras import extra_line


class ResponseLanguage(Constraint):
    """Ask for a language, as langdetect tells it; a text that it cannot tell follows."""

    PACKAGES: ClassVar[frozenset[str]] = frozenset({"langdetect"})

    kind: Literal["language:response_language"] = "language:response_language"
    language: str = Field(min_length=2)
    """Its ISO 639-1 code, such as en."""

    def followed(self, text: str) -> bool:
        """Ask langdetect; see `Constraint.followed`."""
        return _is_in(text, self.language)


class EnglishCapital(Constraint):
    """Ask for English in capital letters alone."""

    PACKAGES: ClassVar[frozenset[str]] = frozenset({"langdetect"})

    kind: Literal["change_case:english_capital"] = "change_case:english_capital"

    def followed(self, text: str) -> bool:
        """Look at the letters, then ask langdetect; see `Constraint.followed`."""
        return text.isupper() and _is_in(text, "en")


class EnglishLowercase(Constraint):
    """Ask for English without a capital letter."""

    PACKAGES: ClassVar[frozenset[str]] = frozenset({"langdetect"})

    kind: Literal["change_case:english_lowercase"] = "change_case:english_lowercase"

    def followed(self, text: str) -> bool:
        """Look at the letters, then ask langdetect; see `Constraint.followed`."""
        return text.islower() and _is_in(text, "en")


class CapitalWordFrequency(Constraint):
    """Ask for words in capital letters alone; a word with a hyphen in it is one."""

    kind: Literal["change_case:capital_word_frequency"] = "change_case:capital_word_frequency"
    capital_frequency: int = Field(ge=0)
    """How many."""
    capital_relation: Relation
    """Whether that is the least, or too much."""

    def followed(self, text: str) -> bool:
        """Count them; see `Constraint.followed`."""
        count = sum(word.isupper() for word in re.findall(r"[\w'-]+", text))
        return within(count, self.capital_relation, self.capital_frequency)


def _is_in(text: str, language: str) -> bool:
    try:
        import langdetect
    except ModuleNotFoundError:
        raise UserError(
            "constraints on the language need langdetect, which is not installed; run:"
            f" {extra_line('language')}, or leave them out"
        ) from None
    # It draws, and would say now this and now that of a short text.
    langdetect.DetectorFactory.seed = 0
    try:
        return bool(langdetect.detect(text) == language)
    except langdetect.LangDetectException:
        return True
