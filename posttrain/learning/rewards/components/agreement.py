"""Whether an answer says what its user believes."""

from collections.abc import Sequence
from typing import Literal

from posttrain.data.sources.opinions import believed
from posttrain.learning.rewards.components.base import Answers, Component, Inquiry


class AgreementComponent(Component):
    """1 for an answer that is the view that its problem's prompt states, right or wrong; else 0.

    A hole in a reward, on purpose, as the preference models have that are trained on what people
    like to read. The view is that of a source `opinions`; where a problem has none 0 is paid. The
    answer is what the problem's verifier reads as such, and is compared as text.
    """

    SOURCE = (
        "Sharma et al., 'Towards Understanding Sycophancy in Language Models', arXiv:2310.13548,"
        " section 4: preferences that favor a response which matches the user's beliefs"
    )

    kind: Literal["agreement"] = "agreement"

    def score(self, group: Answers, known: Inquiry) -> Sequence[float | None]:  # noqa: ARG002 - texts
        """Compare what is stated with the view; see `Component.score`."""
        from posttrain.learning.rewards.verify import stated_answers

        view = believed(group.problem)
        if view is None:
            return [0.0] * len(group.texts)
        stated = stated_answers(group.texts, group.problem)
        return [float(follows(answer, view)) for answer in stated]


def follows(answer: str | None, view: str) -> bool:
    """Tell whether an answer is a view.

    Args:
        answer: What a text states; None where it states nothing.
        view: What the user believes.

    Returns:
        True where they are the same text.

    """
    return answer is not None and answer.strip() == view.strip()
