"""What a variant of an evaluation is: it asks otherwise, or grades otherwise."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from posttrain.learning.rollouts.strategies.base import DrawnSamples
from posttrain.stage.slots import Part

if TYPE_CHECKING:
    from torch import Tensor

    from posttrain.data.schemas import Problem


class Variant(Part):
    """Grades policies otherwise than as they are asked: the same problems, the same randomness."""

    def posed(self, problems: Sequence["Problem"]) -> Sequence["Problem"] | None:  # noqa: ARG002
        """Pose the problems otherwise.

        Args:
            problems: As the evaluation has them.

        Returns:
            As many, in their order, with the same answers and verifiers; None where nothing is
            drawn anew, and what was drawn of the plain problems is graded.

        """
        return None

    def measured(
        self, drawn: DrawnSamples, plain: DrawnSamples, problems: Sequence["Problem"]
    ) -> Mapping[str, "Tensor"]:
        """Grade what was drawn.

        Args:
            drawn: Samples of the problems as they were posed; the plain ones where none were.
            plain: Samples of the plain problems, which those above are paired with.
            problems: The plain problems.

        Returns:
            Figures by name, each a value of every problem, float64 ``[P]``; not a number where a
            problem has none. Their mean is told, with its interval over problems.

        """
        raise NotImplementedError
