"""The domain of tables: a number that stands in one, or the sum of a column."""

from random import Random
from typing import Literal

from posttrain.data.sources.posed import PosedProblem, SlippingSource
from posttrain.data.teachers.notes import Notes

_ROWS = "cdfghkmp"


class TabularSource(SlippingSource):
    """Asks for the sum of a column of a small table with two columns of numbers.

    Level L has L + 1 rows, eight at most. A solution reads the column, then adds it up.
    """

    SOURCE = "the domain Tabular of Guru, arXiv 2506.14965: questions about tables"

    kind: Literal["tabular"] = "tabular"
    name: str = "tabular"
    """Name of the source."""

    def posed(self, level: int, draw: Random) -> PosedProblem:
        """Write a table, and ask for a column; see `PosedSource.posed`."""
        names = draw.sample(_ROWS, min(level + 1, len(_ROWS)))
        columns = {name: [draw.randint(1, 9) for _ in names] for name in "ab"}
        asked = draw.choice("ab")
        rows = [
            f"{each} {one} {other}"
            for each, one, other in zip(names, *columns.values(), strict=True)
        ]

        def work(notes: Notes) -> str:
            read = [notes.value(each) for each in columns[asked]]
            notes.lines.append(" ".join(map(str, read)))
            total = read[0]
            for each in read[1:]:
                total = notes.calculate(total, "+", each)
            return str(total)

        return PosedProblem(
            "\n".join(["- a b", *rows, f"sum {asked}?"]), work(Notes(draw, 0.0)), work
        )
