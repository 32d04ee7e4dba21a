"""The domain of code: a function of x, from what it returns."""

from random import Random
from typing import Annotated, Literal

from pydantic import Field

from posttrain.data.sources.posed import PosedProblem, SlippingSource
from posttrain.data.teachers.notes import Notes
from posttrain.stage.slots import InSlot, Part


class CodeSource(SlippingSource):
    """Asks for an expression in x that returns what is told of 1, 2 and 3; any such one is right.

    At level L its slope is up to 3 L + 4. A solution takes two returned values for the
    slope, and the first one less the slope for the rest.
    """

    SOURCE = "the domain Code of Guru, arXiv 2506.14965: programs that are judged by running them"

    kind: Literal["code"] = "code"
    name: str = "code"
    """Name of the source."""
    verifier: Annotated[Part, InSlot("verifier")] = Field(
        default="expression", validate_default=True
    )
    """What scores an answer."""

    def posed(self, level: int, draw: Random) -> PosedProblem:
        """Tell three values of a line; see `PosedSource.posed`."""
        slope, rest = draw.randint(1, 3 * level + 4), draw.randint(0, 99)
        told = [slope * x + rest for x in (1, 2, 3)]

        def work(notes: Notes) -> str:
            by = notes.calculate(told[1], "-", told[0])
            return f"{by}*x+{notes.calculate(told[0], '-', by)}"

        prompt = f"1:{told[0]} 2:{told[1]} 3:{told[2]} f(x)?"
        return PosedProblem(prompt, f"{slope}*x+{rest}", work)
