"""An answer is paid how often it is preferred to the others that the policy gave."""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal, Self

from pydantic import model_validator

from posttrain.learning.rewards.components.base import Answers, Component, Inquiry
from posttrain.learning.rewards.components.oracles.base import PairOracle
from posttrain.learning.rewards.components.oracles.registry import PAIR_ORACLES
from posttrain.stage.slots import InSlot


class WinRateComponent(Component):
    """The average preference for an answer over the other answers of its group.

    The policy plays against itself: where preferences run in a circle, what is paid changes with
    what the policy does, and its average tends to what cannot be beaten.

    `r(y) = mean of P(y preferred to y')` over the other answers y'.
    """

    SOURCE = "SPO, arXiv 2401.04056, algorithm 1, line 4"
    SCOPE: ClassVar[Literal["group"]] = "group"

    kind: Literal["win_rate"] = "win_rate"
    oracle: Annotated[PairOracle, InSlot(PAIR_ORACLES)]
    """Who says which of two answers is better."""
    against: Literal["group", "answers"] = "group"
    """The other answers of the group; or all answers that the problem's game has, each as often as
    the others: what a reward can say of preferences, whoever plays."""

    @model_validator(mode="after")
    def _knows_all_answers(self) -> Self:
        if self.against == "answers" and self.oracle.kind != "verifier":
            raise ValueError(
                f"against: answers asks the oracle verifier, but oracle is {self.oracle.kind}; only"
                " the game of a problem knows all its answers"
            )
        return self

    def ports(self) -> Sequence[str]:
        """Return the ports of the oracle; see `Component.ports`."""
        return self.oracle.ports()

    def score(self, group: Answers, known: Inquiry) -> Sequence[float | None]:
        """Set each answer against the other ones; see `Component.score`."""
        if self.against == "answers":
            return self._averages(group)
        asked = known([(text, group.problem) for text in group.texts])
        scores = {text: each.value for text, each in zip(group.texts, asked, strict=True)}
        pairs = [(a, b) for a in dict.fromkeys(group.texts) for b in dict.fromkeys(group.texts)]
        oracle = self.oracle.asking(known.models)
        prefers = dict(zip(pairs, oracle.prefers(group.problem, pairs, scores), strict=True))
        rates: list[float | None] = []
        for place, text in enumerate(group.texts):
            others = [*group.texts[:place], *group.texts[place + 1 :]]
            won = [each for other in others if (each := prefers[text, other]) is not None]
            rates.append(sum(won) / len(won) if won else None)
        return rates

    def _averages(self, group: Answers) -> list[float | None]:
        from posttrain.learning.rewards.components.oracles.verifier import game_of

        game = game_of(group.problem)
        return [game.average(text) for text in group.texts]
