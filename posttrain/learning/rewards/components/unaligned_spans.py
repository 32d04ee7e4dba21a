"""How many quotes of a critique do not stand in the answer that it is about."""

from collections.abc import Sequence
from math import inf
from typing import ClassVar, Literal

from posttrain.learning.rewards.components.base import Answers, Component, Inquiry, Range
from posttrain.learning.rewards.components.judged_spans import JudgedSpansComponent


class UnalignedSpansComponent(Component):
    """The number of quotes of the critic of `judged_spans` that are not in the answer.

    For the curve, beside that component and at weight 0: a model that quotes what nobody wrote
    teaches nothing by it. With the same settings the model is not asked again.
    """

    SOURCE = "Text2Grad, arXiv 2505.22338 (spans must be exact quotes)"
    RANGE: ClassVar[Range] = (0.0, inf)

    kind: Literal["unaligned_spans"] = "unaligned_spans"
    asks: JudgedSpansComponent
    """The critic: the settings of `judged_spans`."""

    def score(self, group: Answers, known: Inquiry) -> Sequence[float | None]:
        """Count for one group; see `Component.score`."""
        return self.score_all([group], known)[0]

    def score_all(
        self,
        groups: Sequence[Answers],
        known: Inquiry,  # noqa: ARG002 - the endpoint is asked
    ) -> Sequence[Sequence[float | None]]:
        """Count for all groups at once; see `Component.score_all`."""
        return [
            [None if spans is None else float(spans.lost) for spans in each]
            for each in self.asks.quoted(groups)
        ]
