"""The domain of simulation: what a small program ends with, told by running it in the head."""

from random import Random
from typing import Literal

from posttrain.data.sources.posed import PosedProblem, SlippingSource
from posttrain.data.teachers.notes import Notes


class SimulationSource(SlippingSource):
    """Asks for a variable after a program of two variables, of which each line changes one.

    Level L has L lines behind the two that begin it. A solution writes what each line gives.
    """

    SOURCE = "the domain Simulation of Guru, arXiv 2506.14965: predicting what code returns"

    kind: Literal["simulation"] = "simulation"
    name: str = "simulation"
    """Name of the source."""

    def posed(self, level: int, draw: Random) -> PosedProblem:
        """Write a program, and ask what one of its variables is; see `PosedSource.posed`."""
        begun = {name: draw.randint(1, 9) for name in "ab"}
        steps = [
            (draw.choice("ab"), draw.choice("+-"), draw.choice(["a", "b", str(draw.randint(1, 9))]))
            for _ in range(level)
        ]
        # The last line changes what is asked: without it one might read the answer off the top.
        asked = steps[-1][0]
        lines = [f"{name}={value}" for name, value in begun.items()]
        lines += [f"{to}={to}{operator}{other}" for to, operator, other in steps]

        def work(notes: Notes) -> str:
            values = dict(begun)
            for to, operator, other in steps:
                right = values[other] if other in values else int(other)
                values[to] = notes.calculate(values[to], operator, right)
            return str(values[asked])

        return PosedProblem(f"{'; '.join(lines)}; {asked}?", work(Notes(draw, 0.0)), work)
