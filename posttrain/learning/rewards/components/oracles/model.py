"""A trained reward model says which of two answers is better."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from posttrain.learning.rewards.components.oracles.asking import AskingOracle

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem


class ModelOracle(AskingOracle):
    """Prefers by a reward model: P(a preferred to b) = σ(r(a) - r(b)).

    That is what a Bradley-Terry model was trained to say. Its preferences never run in a circle.
    """

    SOURCE = "Christiano et al., arXiv 1706.03741, section 2.2.3, equation 1"

    kind: Literal["model"] = "model"

    def prefers(
        self,
        problem: "Problem",
        pairs: Sequence[tuple[str, str]],
        scores: Mapping[str, float | None],  # noqa: ARG002 - the model says
    ) -> list[float | None]:
        """Score every text once, then compare; see `PairOracle.prefers`."""
        import torch

        from posttrain.data.contexts import in_context

        texts = list(dict.fromkeys(text for pair in pairs for text in pair))
        prompts = in_context([problem.prompt] * len(texts), [problem.context] * len(texts))
        values = self.asked().reward_model(self.model).score(prompts, texts)
        rewards = dict(zip(texts, values, strict=True))
        gaps = [rewards[first] - rewards[second] for first, second in pairs]
        gaps_N = torch.tensor(gaps, dtype=torch.float64)
        found: list[float | None] = torch.sigmoid(gaps_N).tolist()
        return found
