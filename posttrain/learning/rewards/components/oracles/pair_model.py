"""A trained model that reads both answers says which one is better."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from posttrain.learning.rewards.components.oracles.asking import AskingOracle

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem


class PairModelOracle(AskingOracle):
    """Prefers by a model of both answers: P(a preferred to b) = σ(s(a | x, b) - s(b | x, a)).

    The model is trained by `reward: {reads: both}`. The two orders of a pair add up to 1, and
    nothing else is asked of preferences: they may run in a circle.
    """

    SOURCE = (
        "Munos et al., arXiv 2312.00886, section 3: P(y preferred to y' | x) as one model of prompt"
        " and both answers; its form is a choice here"
    )

    kind: Literal["pair_model"] = "pair_model"

    def prefers(
        self,
        problem: "Problem",
        pairs: Sequence[tuple[str, str]],
        scores: Mapping[str, float | None],  # noqa: ARG002 - the model says
    ) -> list[float | None]:
        """Ask about every two texts once, in both orders; see `PairOracle.prefers`."""
        import torch

        from posttrain.data.contexts import in_context

        model = self.asked().pair_model(self.model)
        asked = list(dict.fromkeys((min(pair), max(pair)) for pair in pairs if pair[0] != pair[1]))
        firsts, seconds = ([pair[side] for pair in asked] for side in (0, 1))
        prompts = in_context([problem.prompt] * len(asked), [problem.context] * len(asked))
        logits_N = torch.tensor(model.logits(prompts, firsts, seconds), dtype=torch.float64)
        known = dict(zip(asked, torch.sigmoid(logits_N).tolist(), strict=True))
        return [
            0.5 if a == b else known[a, b] if (a, b) in known else 1.0 - known[b, a]
            for a, b in pairs
        ]
