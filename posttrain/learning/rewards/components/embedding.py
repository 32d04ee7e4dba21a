"""How near an answer's meaning is to that of the reference, or of the other answers."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

from posttrain.learning.rewards.components.base import Answers, Component, Inquiry, Range
from posttrain.learning.rewards.score import reference_answer

if TYPE_CHECKING:
    from torch import Tensor


class EmbeddingComponent(Component):
    """Cosine of an answer's mean hidden state to the reference's, or its mean over the others'.

    The states are those of a model through the port `references`, over the answer's tokens after
    the prompt's. A negative weight with `to: group` pays for being unlike the others.
    """

    SOURCE = "for `to: group`: as the novelty of EVOL-RL, arXiv 2509.15194, without its bands"
    SCOPE: ClassVar[Literal["group"]] = "group"
    RANGE: ClassVar[Range] = (-1.0, 1.0)
    NEEDS: ClassVar[frozenset[str]] = frozenset({"tokens"})

    kind: Literal["embedding"] = "embedding"
    model: str
    """Name under `inputs.references` of the model whose states are compared."""
    to: Literal["reference", "group"] = "reference"
    """The problem's reference answer (without one nothing is judged: a worked solution's final
    answer where it marks one), or the other answers of the group."""

    def ports(self) -> Sequence[str]:
        """Return the port of the model; see `Component.ports`."""
        return (f"references.{self.model}",)

    def score(self, group: Answers, known: Inquiry) -> Sequence[float | None]:
        """Compare the states; see `Component.score`."""
        import torch

        from posttrain.learning.rewards.components.answer_tokens import answers_states

        reference = reference_answer(group.problem.answer)
        if self.to == "reference" and not reference:
            return [None] * len(group.texts)
        policy = known.models.reference(self.model)
        beside: list[tuple[tuple[int, ...], tuple[bool, ...]]] = []
        if self.to == "reference":
            read = group.read(0)
            told = tuple(policy.tokenizer.encode(reference, add_special_tokens=False))
            beside = [((*read, *told), (False,) * len(read) + (True,) * len(told))]
        states = answers_states(policy, group, beside)
        states_GD = torch.nn.functional.normalize(torch.stack(states), dim=-1)
        near_GG = (states_GD @ states_GD.T).clamp(-1.0, 1.0)
        return self._paid(near_GG, len(group.texts))

    def _paid(self, near_GG: "Tensor", count: int) -> list[float | None]:
        if self.to == "reference":
            return list(near_GG[-1, :-1].tolist())
        if count < 2:
            return [None] * count
        others_G = (near_GG.sum(-1) - near_GG.diagonal()) / (count - 1)
        return list(others_G.clamp(-1.0, 1.0).tolist())
