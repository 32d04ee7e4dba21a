"""How much an answer is like the solutions that somebody wrote."""

from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Literal

from posttrain.learning.rewards.components.base import Answers, Component, Inquiry


class TraceLikenessComponent(Component):
    """`2 M / T` with the most similar trace of the problem: M characters matched, T in both.

    Traces come through the stage's port `traces`. A problem without one is not judged.
    """

    SOURCE = "the sequence similarity of SRL, arXiv 2510.25992, there for one step of a trajectory"

    kind: Literal["trace_likeness"] = "trace_likeness"

    def ports(self) -> Sequence[str]:
        """Return the port of the traces; see `Component.ports`."""
        return ("traces",)

    def score(self, group: Answers, known: Inquiry) -> Sequence[float | None]:
        """Compare the answers with each trace; see `Component.score`."""
        traces = known.tables.traces().get(group.problem.id, ())
        return [
            max((_ratio(trace, text) for trace in traces), default=None) for text in group.texts
        ]


def _ratio(trace: str, text: str) -> float:
    # Without its rule for long texts, by which frequent characters would match nothing.
    return SequenceMatcher(None, trace, text, autojunk=False).ratio()
