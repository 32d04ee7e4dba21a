"""A critique in words, laid on the tokens that it quotes: each is paid or fined where it stands."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, compress
from math import inf
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from posttrain.learning.rewards.components.base import Answers, Component, Inquiry, Range
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_STEP = re.compile(r"^(-?\d+) ([-+*/]) (-?\d+) = (-?\d+)$", re.MULTILINE)
_QUOTED = re.compile(r"^(Right|Wrong): `(.*)`", re.MULTILINE)


class CritiquedSpansComponent(Component):
    """`weight` at each token of what a critique calls right, `-weight` at what it calls wrong.

    The critic is a rule: it works out every line that is one operation, and is told whether the
    last line is right. What it quotes is searched for in the answer, in the order of the critique,
    and every token that lies in it, at least in part, has its number. Take it with an advantage by
    tokens (`gae` or `returns`).
    """

    SOURCE = (
        "Text2Grad, arXiv 2505.22338; microsoft/Text2Grad at bdf0e32,"
        " nl_gradiant_policy_optimization/slf5k (train.py, text2grad_trainer.py)"
    )
    SCOPE: ClassVar[Literal["token"]] = "token"
    RANGE: ClassVar[Range] = (-inf, inf)
    NEEDS: ClassVar[frozenset[str]] = frozenset({"solved", "tokens"})

    kind: Literal["critiqued_spans"] = "critiqued_spans"
    weight: float = Field(default=1.0, gt=0.0)
    """What a token that is quoted is paid or fined."""

    def score_tokens(
        self, groups: Sequence[Answers], known: Inquiry
    ) -> Sequence[Sequence[Sequence[float] | None]]:
        """Criticize, and find what is quoted; see `Component.score_tokens`."""
        tokenizer = tokenizer_of(known, self.kind)
        return [
            [
                None if solved is None else self._paid(tokenizer, ids, drawn, text, solved)
                for ids, drawn, text, solved in zip(
                    group.token_ids, group.drawn, group.texts, group.solved, strict=True
                )
            ]
            for group in groups
        ]

    def _paid(
        self,
        tokenizer: "PreTrainedTokenizerBase",
        ids: Sequence[int],
        drawn: Sequence[bool],
        text: str,
        solved: bool,
    ) -> list[float]:
        ends = token_ends(tokenizer, [*compress(ids, drawn)])
        return laid_on_tokens(spans(critique(text, solved=solved), text), ends, self.weight)


def tokenizer_of(known: Inquiry, kind: str) -> "PreTrainedTokenizerBase":
    """Give the policy's tokenizer, without which nothing can be laid on tokens.

    Args:
        known: What is asked about.
        kind: Of the component that asks.

    Returns:
        The tokenizer.

    Raises:
        UserError: There is none, as where texts alone are scored.

    """
    tokenizer = known.models.tokenizer
    if tokenizer is None:
        raise UserError(
            f"rl.reward: {kind} lays a critique on tokens, and there is no tokenizer here; score"
            " where the policy is at hand"
        )
    return tokenizer


def laid_on_tokens(
    spans: Iterable[tuple[int, int, bool]], ends: Sequence[int], weight: float
) -> list[float]:
    """Pay or fine every token that lies in a span, at least in part.

    >>> laid_on_tokens([(0, 3, True), (2, 5, False)], [2, 4, 6], 1.0)
    [1.0, -1.0, -1.0]

    Args:
        spans: Begin and end in the text, in characters, and whether it is good; where two overlap,
            the last counts.
        ends: Of each token in the text, in characters.
        weight: What a token of a good span is paid, and one of a poor span fined.

    Returns:
        A number for each token; 0 outside of all spans.

    """
    paid = [0.0] * len(ends)
    for begin, end, good in spans:
        for place, (first, last) in enumerate(zip([0, *ends], ends, strict=False)):
            if first < end and last > begin:
                paid[place] = weight if good else -weight
    return paid


def critique(text: str, *, solved: bool) -> str:
    r"""Say of an answer what is right in it and what is not, a line for each.

    >>> print(critique("2 + 3 = 6\n#### 6", solved=False))
    Wrong: `2 + 3 = 6`, it is 5.
    Wrong: `#### 6`, it is not the answer.

    Args:
        text: The answer.
        solved: Whether its last line is right.

    Returns:
        The critique, which quotes what it speaks of.

    """
    said = []
    last = text.rstrip().rpartition("\n")[2]
    for found in _STEP.finditer(text):
        # The last line is judged as the answer, whatever operation it is.
        if found.end() == len(text.rstrip()):
            break
        left, right, result = int(found[1]), int(found[3]), int(found[4])
        if found[2] == "/" and right == 0:
            said.append(f"Wrong: `{found[0]}`, nothing is divided by 0.")
            continue
        value = {"+": left + right, "-": left - right, "*": left * right}.get(found[2])
        value = left // right if value is None else value
        quoted = f"`{found[0]}`"
        said.append(f"Right: {quoted}." if value == result else f"Wrong: {quoted}, it is {value}.")
    if last:
        end = f"Right: `{last}`." if solved else f"Wrong: `{last}`, it is not the answer."
        said.append(end)
    return "\n".join(said)


def spans(critique: str, text: str) -> Iterator[tuple[int, int, bool]]:
    """Find what a critique quotes.

    Args:
        critique: Lines that begin with `Right` or `Wrong` and a quotation.
        text: The answer.

    Yields:
        Where a quotation begins and ends in it, in characters, and whether it is right; nothing
        for one that is not there.

    """
    at = 0
    for verdict, quoted in _QUOTED.findall(critique):
        begin = text.find(quoted, at)
        if begin >= 0:
            at = begin + len(quoted)
            yield begin, at, verdict == "Right"


def token_ends(tokenizer: "PreTrainedTokenizerBase", ids: Sequence[int]) -> list[int]:
    """Where each token ends in the text of all, in characters; one that says nothing has no length.

    Args:
        tokenizer: That wrote them.
        ids: Of the tokens.

    Returns:
        An end for each.

    """

    def said(some: Sequence[int]) -> str:
        return str(tokenizer.decode(some, skip_special_tokens=True))

    pieces = [said([each]) for each in ids]
    if "".join(pieces) == said(ids):
        return [*accumulate(map(len, pieces))]
    # A character of several tokens, or one that is written otherwise at a beginning.
    return [len(said(ids[: place + 1])) for place in range(len(ids))]
