"""What a pair oracle is: a part that says how likely one answer is better than another one."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, Self

from posttrain.stage.slots import Part

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem
    from posttrain.learning.rewards.port_models import PortModels

PairLabel = Literal["preference", "majority", "win_rates"]


class PairOracle(Part):
    """Says how likely one answer is better than another one; derive from it and define `prefers`.

    It need not go by a reward: its preferences may run in a circle.
    """

    label: PairLabel = "preference"
    """What pairs are labeled by: `preference`, the probability itself; `majority`, the likelier
    side as if it were sure; `win_rates`, σ(r(chosen) - r(rejected)), r being how often an answer
    is preferred to one that the policy draws itself (DNO)."""

    def ports(self) -> Sequence[str]:
        """Return the ports whose models it asks, such as `reward_models.helpful`."""
        return ()

    def asking(self, models: "PortModels") -> Self:  # noqa: ARG002 - for those that ask one
        """Return the oracle that asks these models; one without ports is that itself."""
        return self

    def prefers(
        self,
        problem: "Problem",
        pairs: Sequence[tuple[str, str]],
        scores: Mapping[str, float | None],
    ) -> list[float | None]:
        """Compare answers to one problem.

        Args:
            problem: What they answer.
            pairs: A first and a second answer each.
            scores: What the problem's verifier says of every text, as far as it was asked.

        Returns:
            For each pair the probability that the first is better; None where nobody can say.

        """
        raise NotImplementedError

    def labels(
        self,
        problem: "Problem",
        pairs: Sequence[tuple[str, str]],
        drawn: Sequence[str],
        scores: Mapping[str, float | None],
    ) -> list[float | None]:
        """Label pairs of different answers, as `label` says.

        Args:
            problem: What they answer.
            pairs: A first and a second answer each.
            drawn: What the policy draws, as often as it does, for `win_rates`.
            scores: See `prefers`.

        Returns:
            For each pair how likely the first is the better one; None where both are the same text,
            where nobody can say, and for `majority` where neither is likelier.

        """
        differ = [each for each in dict.fromkeys(pairs) if each[0] != each[1]]
        if self.label == "win_rates":
            texts = [text for pair in differ for text in pair]
            rates = dict(zip(texts, self.win_rates(problem, texts, drawn, scores), strict=True))
            found = [_sigmoid_of(rates[first], rates[second]) for first, second in differ]
        else:
            found = self.prefers(problem, differ, scores)
        if self.label == "majority":
            found = [None if each in (None, 0.5) else float(each > 0.5) for each in found]
        known = dict(zip(differ, found, strict=True))
        return [known.get(pair) for pair in pairs]

    def win_rates(
        self,
        problem: "Problem",
        texts: Sequence[str],
        others: Sequence[str],
        scores: Mapping[str, float | None],
    ) -> list[float | None]:
        """Average how often each text is preferred to each of some others.

        Args:
            problem: What they answer.
            texts: Answers.
            others: What each is set against.
            scores: See `prefers`.

        Returns:
            A number for each text; None where it could be compared with none.

        """
        asked = [(text, other) for text in dict.fromkeys(texts) for other in dict.fromkeys(others)]
        known = dict(zip(asked, self.prefers(problem, asked, scores), strict=True))
        rates = []
        for text in texts:
            won = [each for other in others if (each := known[text, other]) is not None]
            rates.append(sum(won) / len(won) if won else None)
        return rates


def _sigmoid_of(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else 1 / (1 + math.exp(second - first))
