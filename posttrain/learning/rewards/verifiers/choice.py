"""An answer is right if it names the right one of several choices, by its letter or its text."""

import re
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from posttrain.learning.rewards.score import CORRECT, WRONG_ANSWER, Score
from posttrain.learning.rewards.verifiers.comparing import ComparingVerifier
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem

NOT_A_CHOICE = Score(0.0, "not_a_choice")

# What stands around a letter in LaTeX and Markdown.
_WRAPPING = re.compile(r"\\(?:text|textbf|mathrm|mathbf)\s*\{(?P<inside>.*)\}", re.DOTALL)
_AROUND = " \t\n*_`$\"'"
# A letter alone or in brackets; or one that a bracket, dot or colon ends, before the choice's text.
_ALONE = re.compile(r"[(\[]?\s*(?P<letter>[A-Za-z])\s*[)\].:]?")
_LEADING = re.compile(
    r"(?:[(\[]\s*(?P<inside>[A-Z])\s*[)\]]|(?P<letter>[A-Z])\s*[).:])\s*\S.*", re.DOTALL
)


class ChoiceVerifier(ComparingVerifier):
    """Accept the letter of the right choice, alone or before its text; or that text itself.

    Further code: "not_a_choice" (the answer is no letter, or one that is not among the choices).
    """

    SOURCE = "MMLU, arXiv:2009.03300: one letter of several is right"

    kind: Literal["choice"] = "choice"
    letters: str = Field(default="ABCDEFGHIJ", pattern=r"^[A-Z]{2,}$")
    """The choices' letters, in their order."""
    options: tuple[str, ...] = ()
    """Texts of the choices in their order, usually of each row; an answer may then be a text."""

    def compare(self, answer: str, problem: "Problem") -> Score:
        """Compare the letters; see `ComparingVerifier.compare`."""
        chosen = self._letter(answer)
        if chosen is None:
            return NOT_A_CHOICE
        right = self._letter(self.expected(problem))
        if right is None:
            raise UserError(
                f"problem {problem.id} of '{problem.source}' is checked by the verifier 'choice',"
                f" but its answer is {problem.answer[-40:]!r}; give one of the letters"
                f" {', '.join(self._offered())}, or the texts of the choices as `options`"
            )
        return CORRECT if chosen == right else WRONG_ANSWER

    def _offered(self) -> str:
        return self.letters[: len(self.options)] if self.options else self.letters

    def _letter(self, text: str) -> str | None:
        """The letter of the choice that a text names."""
        text = text.strip(_AROUND)
        while wrapped := _WRAPPING.fullmatch(text):
            text = wrapped["inside"].strip(_AROUND)
        texts = [_plain(option) for option in self.options]
        if texts.count(_plain(text)) == 1:
            return self.letters[texts.index(_plain(text))]
        found = _ALONE.fullmatch(text)
        if found is None and (leading := _LEADING.fullmatch(text)):
            letter = leading["inside"] or leading["letter"]
        else:
            letter = found["letter"].upper() if found else ""
        return letter if letter and letter in self._offered() else None


def _plain(text: str) -> str:
    return " ".join(text.casefold().split()).rstrip(".")
