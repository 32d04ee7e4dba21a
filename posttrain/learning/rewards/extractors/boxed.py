r"""The answer stands in the last \boxed{...}, as in the MATH data set."""

import re
from typing import Literal

from posttrain.learning.rewards.extractors.base import Extractor

# A box's opening, an escaped character (of which a brace would be none), a brace.
_PIECES = re.compile(r"(?P<box>\\(?:boxed|fbox)\s*\{)|\\.|(?P<brace>[{}])", re.DOTALL)


class BoxedAnswer(Extractor):
    r"""Take what stands in the last \boxed{...} or \fbox{...} that is closed; braces may nest."""

    SOURCE = "MATH, arXiv:2103.03874, hendrycks/math: last_boxed_only_string"

    kind: Literal["boxed"] = "boxed"

    def extract(self, text: str) -> str | None:
        """Find the box that opens last; see `Extractor.extract`."""
        open_braces: list[int | None] = []  # where the inside of a box begins; None of no box
        last: tuple[int, int] | None = None
        for piece in _PIECES.finditer(text):
            if piece["box"]:
                open_braces.append(piece.end())
            elif piece["brace"] == "{":
                open_braces.append(None)
            elif piece["brace"] and open_braces:
                begin = open_braces.pop()
                if begin is not None and (last is None or begin > last[0]):
                    last = begin, piece.start()
        return text[slice(*last)].strip() or None if last else None

    def reference(self, answer: str) -> str:
        """Take the box of a worked solution, where it has one; see `Extractor.reference`."""
        return self.extract(answer) or super().reference(answer)

    def place(self) -> str:
        """Name the box."""
        return r"in a \boxed{...}"
