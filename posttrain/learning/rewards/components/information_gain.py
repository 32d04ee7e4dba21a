"""How much likelier the reference answer becomes by what was written before the last line."""

import math
from collections.abc import Sequence
from statistics import fmean
from typing import ClassVar, Literal

from posttrain.learning.rewards.components.base import Answers, Component, Inquiry, Range


class InformationGainComponent(Component):
    """`p(reference | prompt, text without its last line) - p(reference | prompt)`.

    ``p`` is the exponential of the mean log-probability of the reference's tokens, by a model
    through the port `references`. The last line is left out, as it states an answer itself.
    """

    SOURCE = "IGPO, arXiv 2510.14967, for an answer of one turn"
    RANGE: ClassVar[Range] = (-1.0, 1.0)
    NEEDS: ClassVar[frozenset[str]] = frozenset({"tokens"})

    kind: Literal["information_gain"] = "information_gain"
    model: str
    """Name under `inputs.references` of the model that is asked."""

    def ports(self) -> Sequence[str]:
        """Return the port of the model; see `Component.ports`."""
        return (f"references.{self.model}",)

    def score(self, group: Answers, known: Inquiry) -> Sequence[float | None]:
        """Ask for the reference after each text, and after none; see `Component.score`."""
        from posttrain.learning.rewards.port_models import drawn_logprobs

        policy = known.models.reference(self.model)

        def encoded(text: str) -> list[int]:
            return list(policy.tokenizer.encode(text, add_special_tokens=False))

        told, rows = encoded(group.problem.answer), []
        if not told:
            return [None for _ in group.texts]
        for place, text in enumerate(["", *group.texts]):
            before = text.rstrip().rpartition("\n")[0]
            read = [*group.read(max(place - 1, 0)), *(encoded(before + "\n") if before else [])]
            rows.append((read, told))
        ids = [[*read, *told] for read, told in rows]
        wanted = [[False] * len(read) + [True] * len(told) for read, told in rows]
        plain, *after = [math.exp(fmean(row)) for row in drawn_logprobs(policy, ids, wanted)]
        return [each - plain for each in after]
