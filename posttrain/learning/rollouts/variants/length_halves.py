"""Whether the longer answers to one problem are right as often as the shorter ones."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from posttrain.learning.rollouts.strategies.base import DrawnSamples
from posttrain.learning.rollouts.variants.base import Variant

if TYPE_CHECKING:
    from torch import Tensor

    from posttrain.data.schemas import Problem


class LengthHalves(Variant):
    """Parts the samples of each problem at their median length.

    `shorter` is how often those below it are right, `longer` how often those above, and `change`
    the second less the first: 0 where length is of no use. Samples at the median are in neither. It
    is taken within a problem, as hard problems have long answers.

    Source: own.
    """

    kind: Literal["length_halves"] = "length_halves"

    def measured(
        self,
        drawn: DrawnSamples,
        plain: DrawnSamples,  # noqa: ARG002 - see `Variant.measured`
        problems: Sequence["Problem"],  # noqa: ARG002 - see `Variant.measured`
    ) -> Mapping[str, "Tensor"]:
        """Grade the halves; see `Variant.measured`.

        Returns:
            The three of each problem; not a number where equal lengths leave a half empty.

        """
        assert drawn.lengths_PN is not None
        median_P1 = drawn.lengths_PN.quantile(0.5, dim=-1, keepdim=True)
        below_PN, above_PN = drawn.lengths_PN < median_P1, drawn.lengths_PN > median_P1
        shorter_P, longer_P = (
            (drawn.correct_PN * half_PN).sum(-1) / half_PN.sum(-1)
            for half_PN in (below_PN, above_PN)
        )
        return {"shorter": shorter_P, "longer": longer_P, "change": longer_P - shorter_P}
