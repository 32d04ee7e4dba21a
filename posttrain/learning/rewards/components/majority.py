"""Answers are paid for agreeing with most of their group, whatever is right."""

from collections import Counter
from collections.abc import Sequence
from typing import ClassVar, Literal

from posttrain.learning.rewards.components.base import Answers, Component, Inquiry
from posttrain.learning.rewards.verify import stated_answers


class MajorityComponent(Component):
    """1 for an answer that states what most of its group state, else 0; no label is looked at.

    Of answers that are stated equally often the one that was drawn first counts. Where nobody
    states an answer all get 0.
    """

    SOURCE = "TTRL, arXiv 2504.16084"
    SCOPE: ClassVar[Literal["group"]] = "group"

    kind: Literal["majority"] = "majority"

    def score(self, group: Answers, known: Inquiry) -> Sequence[float | None]:  # noqa: ARG002 - texts
        """Count the answers; see `Component.score`."""
        stated = stated_answers(group.texts, group.problem)
        counted = Counter(each for each in stated if each is not None)
        if not counted:
            return [0.0 for _ in stated]
        # Equal counts stay in the order in which they were met first.
        ((most, _),) = counted.most_common(1)
        return [float(each == most) for each in stated]
