"""How many characters or words would have to change to make an answer the reference."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from posttrain.learning.rewards.score import Score, graded
from posttrain.learning.rewards.verifiers.comparing import ComparingVerifier

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem


class EditDistanceVerifier(ComparingVerifier):
    """Score 1 minus Levenshtein's distance over the longer length; white space is not counted."""

    SOURCE = "Levenshtein (1966), by Myers' bit vectors, J. ACM 46(3), 1999"

    kind: Literal["edit_distance"] = "edit_distance"
    unit: Literal["character", "word"] = "character"
    """What is inserted, removed and replaced."""
    accept: float = Field(default=1.0, gt=0.0, le=1.0)
    """Similarity from which an answer counts as correct and scores 1."""

    def compare(self, answer: str, problem: "Problem") -> Score:
        """Compare what the answer is with what it should be; see `ComparingVerifier.compare`."""
        given, wanted = answer.split(), self.expected(problem).split()
        pair = (given, wanted) if self.unit == "word" else (" ".join(given), " ".join(wanted))
        longer = max(map(len, pair))
        similarity = 1.0 - edit_distance(*pair) / longer if longer else 1.0
        return graded(similarity, accept=self.accept)


def edit_distance(one: Sequence[str], other: Sequence[str]) -> int:
    """Count the insertions, removals and replacements that make one sequence the other.

    >>> edit_distance("kitten", "sitting"), edit_distance(["a", "b"], ["b"])
    (3, 1)

    Args:
        one: A text, or a list of words.
        other: Another.

    Returns:
        Levenshtein's distance. A column of its table is two whole numbers of as many bits as `one`
        is long, so that long texts take milliseconds.

    """
    if not one:
        return len(other)
    places: dict[str, int] = {}
    for bit, unit in enumerate(one):
        places[unit] = places.get(unit, 0) | 1 << bit
    whole, last = (1 << len(one)) - 1, 1 << len(one) - 1
    up, down, distance = whole, 0, len(one)
    for unit in other:
        equal = places.get(unit, 0)
        same = equal | down
        flat = (((equal & up) + up) ^ up) | equal
        right, left = down | ~(flat | up) & whole, up & flat
        distance += bool(right & last) - bool(left & last)
        right, left = (right << 1 | 1) & whole, left << 1 & whole
        up, down = left | ~(same | right) & whole, right & same
    return distance
