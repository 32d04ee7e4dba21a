"""How much likelier the reference answer becomes by each turn and what was read after it."""

import json
import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING, ClassVar, Literal

from posttrain.learning.rewards.components.base import Answers, Component, Inquiry, Range

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem


class TurnInformationGainComponent(Component):
    """`p(reference | read after turn k) - p(reference | read before turn k)`, for each turn.

    ``p`` is the exponential of the mean log-probability of the reference's tokens, where the next
    turn would begin and behind what is read there, by a model through the port `references`.
    Nothing is read after the last turn, which gets 0: what it is worth another component says.
    """

    SOURCE = "IGPO, arXiv 2510.14967, equations 3 and 4"
    SCOPE: ClassVar[Literal["turn"]] = "turn"
    RANGE: ClassVar[Range] = (-1.0, 1.0)
    NEEDS: ClassVar[frozenset[str]] = frozenset({"tokens"})

    kind: Literal["turn_information_gain"] = "turn_information_gain"
    model: str
    """Name under `inputs.references` of the model that is asked."""
    fact: str = ""
    """What of a world's problem is its answer, such as `answer`; a problem that has no such fact is
    asked about by its answer as it stands."""

    def ports(self) -> Sequence[str]:
        """Return the port of the model; see `Component.ports`."""
        return (f"references.{self.model}",)

    def score_turns(
        self, groups: Sequence[Answers], known: Inquiry
    ) -> Sequence[Sequence[Sequence[float] | None]]:
        """Ask before each turn, and behind the last; see `Component.score_turns`."""
        from posttrain.learning.rewards.port_models import drawn_logprobs

        policy = known.models.reference(self.model)
        ids: list[list[int]] = []
        wanted: list[list[bool]] = []
        for group in groups:
            told = list(
                policy.tokenizer.encode(self._answer(group.problem), add_special_tokens=False)
            )
            for place, tokens in enumerate(group.token_ids if told else ()):
                for first, begin in _begins(group, place):
                    ids.append([*tokens[first:begin], *told])
                    wanted.append([False] * (begin - first) + [True] * len(told))
        rows = drawn_logprobs(policy, ids, wanted) if ids else []
        likely = iter(math.exp(fmean(row)) for row in rows)

        def gains(group: Answers, place: int) -> list[float]:
            found = [next(likely) for _ in _begins(group, place)]
            return [after - before for before, after in pairwise(found)] + [0.0]

        return [
            [
                gains(group, place) if self._answer(group.problem) else None
                for place in range(len(group.texts))
            ]
            for group in groups
        ]

    def _answer(self, problem: "Problem") -> str:
        if not self.fact:
            return problem.answer
        try:
            facts = json.loads(problem.answer)
        except ValueError:
            return problem.answer
        return str(facts.get(self.fact, "")) if isinstance(facts, dict) else problem.answer


def _begins(group: Answers, place: int) -> list[tuple[int, int]]:
    """Where each turn's drawn tokens begin, behind where the sequence begins that they are in."""
    drawn = group.drawn[place]
    return [
        (each.start, t)
        for each in group.sequences(place)
        for t in each
        if drawn[t] and not (t > each.start and drawn[t - 1])
    ]
