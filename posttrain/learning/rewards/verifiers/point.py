"""Whether a point that an answer states lies in a box."""

from typing import TYPE_CHECKING, Literal

from posttrain.learning.rewards.score import CORRECT, WRONG_ANSWER, Score
from posttrain.learning.rewards.verifiers.box import box_in, numbers_in, right_box
from posttrain.learning.rewards.verifiers.comparing import ComparingVerifier

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem

NOT_A_POINT = Score(0.0, "not_a_point")
_COORDINATES = 2


class PointVerifier(ComparingVerifier):
    """Accept a point in the reference box, its edges included; a box counts by its center.

    Further code: "not_a_point" (the answer has neither two nor four numbers).
    """

    SOURCE = "UI-R1, arXiv:2503.21620: the click's coordinate lies in the element's box"

    kind: Literal["point"] = "point"

    def compare(self, answer: str, problem: "Problem") -> Score:
        """Look where the point lies; see `ComparingVerifier.compare`."""
        point = _point(answer)
        if point is None:
            return NOT_A_POINT
        left, top, right, bottom = right_box(self.expected(problem), problem, kind=self.kind)
        inside = left <= point[0] <= right and top <= point[1] <= bottom
        return CORRECT if inside else WRONG_ANSWER


def _point(text: str) -> tuple[float, float] | None:
    numbers = numbers_in(text)
    if len(numbers) == _COORDINATES:
        return numbers[0], numbers[1]
    box = box_in(text)
    return ((box[0] + box[2]) / 2, (box[1] + box[3]) / 2) if box else None
