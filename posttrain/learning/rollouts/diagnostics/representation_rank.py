"""How many directions a policy's representations of the problems span."""

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from posttrain.learning.rollouts.diagnostics.base import Diagnosis, Diagnostic, Seen
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor


class RepresentationRank(Diagnostic):
    """Measures the rank of the last hidden states at the end of each problem's prompt.

    `effective` is the exponential of the entropy of the singular values, `numerical` how many are
    above `tolerance` of their sum together: the least number of the largest whose sum is at least
    1 - `tolerance` of all. `neighbors` is the mean cosine of the states of two consecutive tokens,
    which a Bellman equation bounds for states of a value. Of every policy but the reference,
    `kept` is the effective rank as a share of the reference's.
    """

    SOURCE = (
        "He et al., 'Adaptive Regularization of Representation Rank as an Implicit Constraint of"
        " Bellman Equation' (BEER), arXiv:2404.12754; srank of Kumar et al., arXiv:2010.14498;"
        " effective rank of Roy and Vetterli, 2007"
    )
    NEEDS = frozenset({"policies", "problems"})

    kind: Literal["representation_rank"] = "representation_rank"
    tolerance: float = Field(default=0.01, gt=0.0, lt=1.0)
    """Share of the singular values' sum that may be left out."""
    most: int = Field(default=256, ge=2)
    """Problems that are looked at, the first ones."""

    def diagnose(self, seen: Seen) -> Diagnosis:
        """Measure every policy on the same prompts; see `Diagnostic.diagnose`."""
        figures = {name: self._figures(seen, name) for name in seen.policies}
        if seen.reference not in figures:
            seen.compared(seen.policies)
        full = figures[seen.reference]["effective"]
        for name, of_it in figures.items():
            if name != seen.reference:
                of_it["kept"] = of_it["effective"] / full
        return Diagnosis(figures)

    def _figures(self, seen: Seen, name: str) -> dict[str, float]:
        import torch

        states_PD, cosines = self._states(seen, name)
        singular = torch.linalg.svdvals(states_PD.double())
        share = singular / singular.sum()
        entropy = -(share * share.clamp(min=1e-300).log()).sum()
        covered = share.cumsum(0)
        return {
            "effective": float(entropy.exp()),
            "numerical": float((covered < 1 - self.tolerance).sum() + 1),
            "neighbors": cosines,
        }

    def _states(self, seen: Seen, name: str) -> tuple["Tensor", float]:
        """States at the end of each prompt, and the mean cosine of neighboring ones."""
        import torch

        from posttrain.data.schemas import PROBLEMS
        from posttrain.data.tables import read_table
        from posttrain.learning.models.load import load_policy
        from posttrain.learning.rollouts.scoring import make_prompts, problems_of

        if seen.problems is None:
            raise UserError("diagnose.inputs.problems: no problems are connected; connect some")
        policy = load_policy(seen.policies[name], device=seen.device)
        problems = problems_of(read_table(seen.problems, PROBLEMS)[: self.most])
        last, cosines = [], []
        with torch.inference_mode():
            for prompt in make_prompts(policy.tokenizer, problems):
                ids = torch.tensor([list(prompt.token_ids)], device=seen.device)
                states_TD = (
                    policy.model(ids, output_hidden_states=True).hidden_states[-1][0].float()
                )
                last.append(states_TD[-1])
                cosine = torch.nn.functional.cosine_similarity(states_TD[:-1], states_TD[1:], -1)
                cosines += cosine.tolist()
        return torch.stack(last).cpu(), sum(cosines) / max(1, len(cosines))
