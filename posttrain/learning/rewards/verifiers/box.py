"""How much of a box an answer's box covers, from the four numbers that it states."""

import math
import re
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from posttrain.learning.rewards.score import Score, graded
from posttrain.learning.rewards.verifiers.comparing import ComparingVerifier
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem

NOT_A_BOX = Score(0.0, "not_a_box")

Box = tuple[float, float, float, float]
"""Left, top, right, bottom."""

# No digit of a word, such as bbox_2d or x1.
_WRITTEN = re.compile(r"(?<![\w.])-?\.?\d[\d.]*(?:[eE][+-]?\d+)?")
_NUMBER = re.compile(r"-?(?:\d{1,9}(?:\.\d+)?|\.\d+)")
_SIDES = 4


class BoxVerifier(ComparingVerifier):
    """Score the intersection over union of two boxes, each four numbers: x1, y1, x2, y2.

    Further code: "not_a_box" (the answer has not four numbers, or its corners are the wrong way
    round).
    """

    SOURCE = "VLM-R1, arXiv:2504.07615: the reward of referring expressions is the IoU"

    kind: Literal["box"] = "box"
    accept: float = Field(default=1.0, gt=0.0, le=1.0)
    """Overlap from which an answer counts as correct and scores 1; 0.5 is the usual one."""

    def compare(self, answer: str, problem: "Problem") -> Score:
        """Compare the boxes; see `ComparingVerifier.compare`."""
        given = box_in(answer)
        if given is None:
            return NOT_A_BOX
        return graded(
            overlap(given, right_box(self.expected(problem), problem)), accept=self.accept
        )


def numbers_in(text: str) -> list[float]:
    """Return the numbers of a text, in their order.

    >>> numbers_in("bbox_2d: 10, x2=20."), numbers_in("1.2.3 and 4")
    ([10.0, 20.0], [])

    Args:
        text: What was written; digits within words are none.

    Returns:
        The numbers; nothing where one is no plain number, or has more than nine digits before its
        point.

    """
    # A point may end the sentence.
    written = [found.rstrip(".") for found in _WRITTEN.findall(text)]
    return [float(each) for each in written] if all(map(_NUMBER.fullmatch, written)) else []


def box_in(text: str) -> Box | None:
    """Read a box.

    >>> box_in("[10, 20.5, 30, 40]"), box_in("(1, 2)"), box_in("[3, 0, 1, 2]")
    ((10.0, 20.5, 30.0, 40.0), None, None)

    Args:
        text: Four numbers, whatever stands between them.

    Returns:
        Its sides; None where there are not just four numbers, or right is left of left.

    """
    numbers = numbers_in(text)
    if len(numbers) != _SIDES or numbers[0] > numbers[2] or numbers[1] > numbers[3]:
        return None
    return numbers[0], numbers[1], numbers[2], numbers[3]


def overlap(one: Box, other: Box) -> float:
    """Compute the intersection over union of two boxes.

    >>> overlap((0, 0, 2, 2), (1, 0, 3, 2))
    0.3333333333333333

    Args:
        one: A box.
        other: Another one.

    Returns:
        Shared area over the area of both; 0 where neither has any.

    """
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    shared = max(width, 0.0) * max(height, 0.0)
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (one, other)]
    union = math.fsum(areas) - shared
    return shared / union if union else 0.0


def right_box(reference: str, problem: "Problem", *, kind: str = "box") -> Box:
    """Read the box that a problem asks for.

    Args:
        reference: Its answer.
        problem: The problem, for the error.
        kind: The verifier, for the error.

    Returns:
        Its sides.

    Raises:
        UserError: It is none.

    """
    box = box_in(reference)
    if box is None:
        raise UserError(
            f"problem {problem.id} of '{problem.source}' is checked by the verifier"
            f" '{kind}', but its answer is {problem.answer[-40:]!r}; give a box as four"
            " numbers: left, top, right, bottom"
        )
    return box
