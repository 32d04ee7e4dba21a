"""What every constraint is: a part that a text follows or does not."""

from typing import Literal

from posttrain.stage.slots import Part

Relation = Literal["less than", "at least"]
"""How many of something there may be."""


class Constraint(Part):
    """Something that an instruction asks of a text; derive from it and define `followed`.

    Those that ship are called as in IFEval, with its arguments, so that its rows can be read.
    """

    SOURCE = "IFEval, arXiv:2311.07911; google-research/instruction_following_eval/instructions.py"

    def followed(self, text: str) -> bool:
        """Tell whether a text does as it was asked.

        Args:
            text: What the model wrote, not empty.

        """
        raise NotImplementedError


def within(number: int, relation: Relation, limit: int) -> bool:
    """Compare a number.

    >>> within(3, "at least", 3), within(3, "less than", 3)
    (True, False)

    Args:
        number: How many there are.
        relation: Whether the limit is the least, or too much.
        limit: With what it is compared.

    Returns:
        Whether it is so.

    """
    return number < limit if relation == "less than" else number >= limit
