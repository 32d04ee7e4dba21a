"""Objectives of self-supervised training on small phone books: texts to be restored."""

from collections.abc import Callable, Mapping
from random import Random
from typing import Literal

from posttrain.data.sources.posed import PosedProblem, PosedSource

_NAMES = ("ba", "co", "du", "fe", "gi", "ho", "ju", "ka", "le", "mi", "no", "pu")

Objective = Literal["copying", "deshuffling", "infilling", "selective_copying", "next"]
"""What a text is restored from: itself, its entries shuffled, its entries with letters left out,
itself but for all save the entry that is named, or its first two entries."""


class RestoredSource(PosedSource):
    """Asks for a text, or for a part of it, by one objective; the text is a phone book.

    Level L has L + 2 entries, each a name and two digits, by name. All but `next` can be done:
    digits that were not told nobody knows.
    """

    SOURCE = (
        "Birdie, arXiv 2411.01030; samblouir/birdie at b81f78e, birdie_rl/objectives (copying,"
        " deshuffling, infilling, selective_copying, next_token_prediction)"
    )

    kind: Literal["restored"] = "restored"
    name: str
    """Name of the source, such as its objective."""
    objective: Objective = "copying"
    """What a text is restored from."""
    solutions: int = 1
    """Solutions of each problem, which are all alike."""

    def posed(self, level: int, draw: Random) -> PosedProblem:
        """Write a phone book, and what of it is told; see `PosedSource.posed`."""
        names = sorted(draw.sample(_NAMES, min(level + 2, len(_NAMES))))
        book = [f"{name}{draw.randint(10, 99)}" for name in names]
        told, answer = _TOLD[self.objective](book, draw)
        return PosedProblem(f"{self.objective[:4]} {told}", answer, lambda _: answer)


def _deshuffling(book: list[str], draw: Random) -> tuple[str, str]:
    return " ".join(draw.sample(book, len(book))), " ".join(book)


def _infilling(book: list[str], draw: Random) -> tuple[str, str]:
    # A name's vowel follows from its consonant, and where it stands from those beside it.
    left_out = set(draw.sample(range(len(book)), len(book) // 2))
    told = [f"{e[0]}_{e[2:]}" if place in left_out else e for place, e in enumerate(book)]
    return " ".join(told), " ".join(book)


def _selective(book: list[str], draw: Random) -> tuple[str, str]:
    entry = draw.choice(book)
    return f"{entry[:2]} {' '.join(book)}", entry[2:]


_TOLD: Mapping[Objective, Callable[[list[str], Random], tuple[str, str]]] = {
    "copying": lambda book, _: (" ".join(book), " ".join(book)),
    "deshuffling": _deshuffling,
    "infilling": _infilling,
    "selective_copying": _selective,
    "next": lambda book, _: (" ".join(book[:2]), " ".join(book[2:])),
}
"""Objective -> what is told of a book, and what is asked for."""
