"""How a text is laid out: bullets, highlights, sections, JSON, a title, one of some answers."""

import json
import re
from typing import Literal

from pydantic import Field

from posttrain.learning.rewards.constraints.base import Constraint

_ANSWERS = ("My answer is yes.", "My answer is no.", "My answer is maybe.")
_FENCE = re.compile(r"```(?:json)?(?P<inside>.*)```", re.DOTALL | re.IGNORECASE)


class BulletPoints(Constraint):
    """Ask for a number of Markdown's bullet points."""

    kind: Literal["detectable_format:number_bullet_lists"] = "detectable_format:number_bullet_lists"
    num_bullets: int = Field(ge=0)
    """Just so many."""

    def followed(self, text: str) -> bool:
        """Count lines that start with one asterisk, or with a dash; see `Constraint.followed`."""
        lines = (line.lstrip() for line in text.splitlines())
        bullets = sum(re.match(r"\*[^*]|-", line) is not None for line in lines)
        return bullets == self.num_bullets


class OneOfThreeAnswers(Constraint):
    """Ask for "My answer is yes.", "My answer is no." or "My answer is maybe."."""

    kind: Literal["detectable_format:constrained_response"] = (
        "detectable_format:constrained_response"
    )

    def followed(self, text: str) -> bool:
        """Look for one of them; see `Constraint.followed`."""
        return any(answer in text for answer in _ANSWERS)


class Highlights(Constraint):
    """Ask for sections that are highlighted as in *Markdown*."""

    kind: Literal["detectable_format:number_highlighted_sections"] = (
        "detectable_format:number_highlighted_sections"
    )
    num_highlights: int = Field(ge=0)
    """At least so many."""

    def followed(self, text: str) -> bool:
        """Count those that are not empty, of one asterisk and of two; see `Constraint.followed`."""
        single = re.findall(r"\*[^\n*]*\*", text)
        double = re.findall(r"\*\*[^\n*]*\*\*", text)
        found = sum(bool(each.strip("*").strip()) for each in (*single, *double))
        return found >= self.num_highlights


class Sections(Constraint):
    """Ask for sections with a numbered heading, such as Section 1."""

    kind: Literal["detectable_format:multiple_sections"] = "detectable_format:multiple_sections"
    section_spliter: str = Field(min_length=1)
    """The heading without its number; spelled as in IFEval."""
    num_sections: int = Field(ge=0)
    """At least so many."""

    def followed(self, text: str) -> bool:
        """Count the headings; see `Constraint.followed`."""
        heading = re.escape(self.section_spliter.strip())
        return len(re.findall(rf"{heading}\s?\d+", text)) >= self.num_sections


class JsonOnly(Constraint):
    """Ask for JSON and nothing else, in a Markdown fence or not."""

    kind: Literal["detectable_format:json_format"] = "detectable_format:json_format"

    def followed(self, text: str) -> bool:
        """Read it; see `Constraint.followed`."""
        fenced = _FENCE.fullmatch(text.strip())
        try:
            json.loads(fenced["inside"] if fenced else text)
        except (ValueError, RecursionError):
            return False
        return True


class Title(Constraint):
    """Ask for a title in double angular brackets, such as <<poem of joy>>."""

    kind: Literal["detectable_format:title"] = "detectable_format:title"

    def followed(self, text: str) -> bool:
        """Look for one that is not empty; see `Constraint.followed`."""
        return any(each.strip("<> ") for each in re.findall(r"<<[^\n]+>>", text))
