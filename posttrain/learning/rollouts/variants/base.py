"""What a variant of an evaluation is: it asks, decodes or grades otherwise."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from posttrain.learning.rollouts.strategies.base import DrawnSamples
from posttrain.stage.slots import Part

if TYPE_CHECKING:
    from torch import Tensor

    from posttrain.data.schemas import Problem
    from posttrain.learning.models.load import Policy
    from posttrain.learning.rollouts.engines.base import RolloutEngine, SamplingParams


@dataclass(frozen=True)
class DecodingBench:
    """What a variant that decodes otherwise works with."""

    policy: "Policy"
    """The policy that is graded."""
    reference: "Policy"
    """The first one of the evaluation, which the others were trained from."""
    batch_size: int
    """Sequences that are decoded together."""
    problems: "Sequence[Problem]" = ()
    """All that are evaluated."""


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

    def drawn_by(self, bench: DecodingBench) -> "RolloutEngine | None":  # noqa: ARG002
        """Open what draws the answers in place of the evaluation's own engine.

        Args:
            bench: The policies.

        Returns:
            An engine; None for the evaluation's own.

        """
        return None

    def params(self, params: "SamplingParams") -> "SamplingParams":
        """Say how it samples.

        Args:
            params: As the evaluation samples.

        Returns:
            The same, with what the variant changes.

        """
        return params

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


def compared(drawn: DrawnSamples, plain: DrawnSamples) -> Mapping[str, "Tensor"]:
    """Grade samples against the plain ones, for a variant that asks or decodes otherwise.

    Args:
        drawn: Samples of the problems by the variant.
        plain: Samples of the plain problems by the evaluation's own engine.

    Returns:
        `pass_at_1`, how often samples are right; `change`, that less how often the plain ones are;
        `length`, their mean number of tokens; each float64 ``[P]``.

    """
    assert drawn.lengths_PN is not None
    right_P = drawn.correct_PN.mean(-1)
    return {
        "pass_at_1": right_P,
        "change": right_P - plain.correct_PN.mean(-1),
        "length": drawn.lengths_PN.mean(-1),
    }
