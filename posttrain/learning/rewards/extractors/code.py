"""The answer is a block of code: between fences of Markdown, or the whole text."""

import re
from typing import Literal

from posttrain.learning.rewards.extractors.base import Extractor

_FENCED = re.compile(r"^[ \t]*```[ \t]*([\w+#-]*)[^\n]*\n(.*?)^[ \t]*```[ \t]*$", re.M | re.S)


class CodeAnswer(Extractor):
    """Take the last fenced block of code, of a language if one is named; other fences are prose.

    Source: own; fenced code blocks of CommonMark.
    """

    kind: Literal["code"] = "code"
    languages: tuple[str, ...] = ()
    """Words behind the fence that count, such as python and py; a fence without one does too."""
    fenced: bool = True
    """Find nothing in a text without fences; else such a text is code as a whole."""

    def extract(self, text: str) -> str | None:
        r"""Find the block; see `Extractor.extract`.

        Returns:
            The code, with the end of its last line; None where there is none.

        >>> CodeAnswer().extract("So:\n```python\nx = 1\n```\n")
        'x = 1\n'

        """
        wanted = {"", *self.languages}
        blocks = [
            code
            for language, code in _FENCED.findall(text)
            if not self.languages or language.lower() in wanted
        ]
        if blocks:
            return str(blocks[-1]) if blocks[-1].strip() else None
        return None if self.fenced or not text.strip() else text

    def place(self) -> str:
        """Say where it is looked for."""
        return "in a block between ``` fences"
