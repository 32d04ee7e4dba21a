"""The domain of science: a quantity with its unit, from two others and the law between them."""

from random import Random
from typing import Literal

from posttrain.data.sources.posed import PosedProblem, SlippingSource
from posttrain.data.teachers.notes import Notes

_LAWS = (
    ("m/s", "s", "m"),
    ("N", "m", "J"),
    ("W", "s", "J"),
    ("V", "A", "W"),
    ("A", "s", "C"),
    ("g/ml", "ml", "g"),
    ("kg", "m/s2", "N"),
)
"""Units of two quantities and of their product."""


class ScienceSource(SlippingSource):
    """Asks for a third quantity of a law by its unit: a product, or at every second level a factor.

    Numbers go up to 2 L + 7 at level L. A solution is the one operation, then the number and unit.
    """

    SOURCE = "the domain Science of Guru, arXiv 2506.14965"

    kind: Literal["science"] = "science"
    name: str = "science"
    """Name of the source."""

    def posed(self, level: int, draw: Random) -> PosedProblem:
        """Tell two quantities of a law, and ask for the third; see `PosedSource.posed`."""
        one, other, product = draw.choice(_LAWS)
        left, right = draw.randint(2, 2 * level + 7), draw.randint(2, 2 * level + 7)
        known, operator, asked = (left, one, right, other), "*", product
        if level % 2 == 0:
            known, operator, asked = (left * right, product, right, other), "/", one
        first, unit, second, unit_of = known

        def work(notes: Notes) -> str:
            return f"{notes.calculate(first, operator, second)} {asked}"

        prompt = f"{first} {unit}, {second} {unit_of}: {asked}?"
        return PosedProblem(prompt, work(Notes(draw, 0.0)), work)
