"""How far a policy is from what RL with a divergence converges to, over all words of a tree."""

import json
from itertools import product
from statistics import fmean
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from posttrain.learning.rollouts.diagnostics.base import Diagnosis, Diagnostic, Seen
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from posttrain.data.schemas import Problem
    from posttrain.learning.models.load import Policy


class Posterior(Diagnostic):
    """Computes the divergence from the optimum of E[r] - β KL(π, π_0), with the reference as π_0.

    The optimum is ``π_0 exp(r / β) / Z``, the posterior of the reference as prior. All words of a
    problem are asked for, scored, and taken as all that a policy can say: `kl` is KL(π, optimum)
    in nats, `entropy` that of π and `optimal_entropy` that of the optimum, `right` the share of
    right words, `said` the probability that π says a word at all and ends, as the tokenizer writes
    it: where that is far from 1 the other figures are of a part of what π says. They are averaged
    over problems.
    Problems that are not of a source `word_tree` are left out.
    """

    SOURCE = (
        "Korbak et al., 'RL with KL penalties is better viewed as Bayesian inference',"
        " arXiv:2205.11275, equation 4"
    )
    NEEDS = frozenset({"policies", "problems"})

    kind: Literal["posterior"] = "posterior"
    beta: float = Field(default=0.1, gt=0.0)
    """β: weight of the divergence, in units of reward a nat."""
    problems: int = Field(default=4, ge=1)
    """Problems that are looked at, the first ones."""

    def diagnose(self, seen: Seen) -> Diagnosis:
        """Ask every policy for all words; see `Diagnostic.diagnose`."""
        import torch

        from posttrain.learning.models.load import load_policy
        from posttrain.learning.rewards.verify import verify_all

        trees = _trees(seen)[: self.problems]
        prior = load_policy(seen.compared(seen.policies), device=seen.device)
        rewards, optima = [], []
        for problem, words in trees:
            scores = [score.value or 0.0 for score in verify_all([(w, problem) for w in words])]
            rewards.append(torch.tensor(scores, dtype=torch.float64))
            tilted_W = word_logprobs(prior, problem, words) + rewards[-1] / self.beta
            optima.append(tilted_W.log_softmax(-1))
        figures = {}
        for name, path in seen.policies.items():
            policy = load_policy(path, device=seen.device)
            said = [word_logprobs(policy, *tree) for tree in trees]
            found = [_apart(*each) for each in zip(said, optima, rewards, strict=True)]
            figures[name] = {key: fmean(each[key] for each in found) for key in found[0]}
        return Diagnosis(figures)


def word_logprobs(policy: "Policy", problem: "Problem", words: "Sequence[str]") -> "Tensor":
    """Ask a policy how likely it answers a problem by each of some words, and ends.

    Args:
        policy: The policy.
        problem: What is asked.
        words: The answers.

    Returns:
        Log-probabilities in nats, float64 ``[W]``.

    """
    import torch

    from posttrain.data.templates import encode_completions
    from posttrain.learning.rewards.port_models import drawn_logprobs
    from posttrain.learning.rollouts.scoring import make_prompts

    (prompt,) = make_prompts(policy.tokenizer, [problem])
    told = encode_completions(policy.tokenizer, words)
    rows = [[*prompt.token_ids, *ids] for ids in told]
    wanted = [[False] * len(prompt.token_ids) + [True] * len(ids) for ids in told]
    sums = [sum(each) for each in drawn_logprobs(policy, rows, wanted)]
    return torch.tensor(sums, dtype=torch.float64)


def _apart(said_W: "Tensor", optimum_W: "Tensor", rewards_W: "Tensor") -> dict[str, float]:
    """Compare what a policy says with the optimum, both as log-probabilities of all words."""
    logprobs_W = said_W.log_softmax(-1)
    shares_W = logprobs_W.exp()
    return {
        "kl": float((shares_W * (logprobs_W - optimum_W)).sum()),
        "entropy": float(-(shares_W * logprobs_W).sum()),
        "optimal_entropy": float(-(optimum_W.exp() * optimum_W).sum()),
        "right": float((shares_W * rewards_W).sum()),
        "said": float(said_W.exp().sum()),
    }


def _trees(seen: Seen) -> "list[tuple[Problem, list[str]]]":
    """The problems that ask for words, with all words of each."""
    from posttrain.data.sources.word_tree import TREE_WORDS

    found = []
    for problem in seen.scored_problems():
        if (said := json.loads(problem.metadata).get(TREE_WORDS)) is not None:
            letters = product(said["letters"], repeat=int(said["length"]))
            found.append((problem, ["".join(each) for each in letters]))
    if not found:
        raise UserError(
            "diagnose.inputs.problems: none asks for a word of a tree, so not all answers are"
            " known; connect problems of a source word_tree"
        )
    return found
