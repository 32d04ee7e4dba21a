"""Whether a benchmark of reward models tells which one is good to choose with."""

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from posttrain.learning.rollouts.diagnostics.base import Diagnosis, Diagnostic, Seen
from posttrain.learning.rollouts.diagnostics.rewards import rewards_of
from posttrain.learning.rollouts.diagnostics.samples import (
    PolicySamples,
    reference_samples,
    samples_by_policy,
)
from posttrain.stage.errors import UserError
from posttrain.stage.seeds import purpose_seed

if TYPE_CHECKING:
    from pathlib import Path


class OneVsMany(Diagnostic):
    """Sets one right answer against many wrong ones, and asks what that foretells.

    The answers are the reference's samples, equal texts once. `accuracy` is the share of problems
    whose right answer has a higher reward than each of `many` wrong ones, `mrr` the mean of one
    over its rank, `pairs` the accuracy against one of the wrong ones; `best_of_N` is how often the
    best of N samples by the reward is right, the gold. Of all reward models together stand
    `foretold` and `foretold_by_pairs`: the rank correlations, over models, of accuracy and of pairs
    with the gold, and `lead`, the first less the second.
    """

    SOURCE = (
        "Kim et al., 'Evaluating Robustness of Reward Models for Mathematical Reasoning',"
        " arXiv:2410.01729; kimsh0507/RewardMATH_official at cd599e8, src/evaluation/eval.py"
    )
    NEEDS = frozenset({"reward_models", "reports", "completions"})

    kind: Literal["one_vs_many"] = "one_vs_many"
    many: int = Field(default=9, ge=1)
    """Wrong answers beside the right one; problems with fewer are left out."""
    best_of: int = Field(default=8, ge=2)
    """N: samples of which the best is taken."""

    def diagnose(self, seen: Seen) -> Diagnosis:
        """Grade every reward model on the same answers; see `Diagnostic.diagnose`."""
        samples = reference_samples(seen, samples_by_policy(seen))
        if samples.correct_PN.shape[1] < self.best_of:
            raise UserError(
                f"diagnose: best_of is {self.best_of} and there are"
                f" {samples.correct_PN.shape[1]} samples of a problem; draw more, or ask for fewer"
            )
        sets = self._sets(samples, seen.seed)
        if not sets:
            raise UserError(
                f"diagnose: no problem has a right sample and {self.many} different wrong ones;"
                " draw more samples, or lower many"
            )
        figures = {
            name: self._grade(path, samples, sets, seen.device)
            for name, path in seen.reward_models.items()
        }
        told = self._foretold(figures)
        return Diagnosis({name: of_it | told for name, of_it in figures.items()})

    def _sets(self, samples: PolicySamples, seed: int) -> dict[int, list[int]]:
        """Of a problem's place, the places of one right answer and of the wrong ones behind it."""
        from random import Random

        found = {}
        for place, texts in enumerate(samples.texts):
            first = {text: number for number, text in reversed([*enumerate(texts)])}
            right = samples.correct_PN[place].bool().tolist()
            chosen = sorted(number for number in first.values() if right[number])
            wrong = sorted(number for number in first.values() if not right[number])
            if chosen and len(wrong) >= self.many:
                draw = Random(purpose_seed(seed, "one_vs_many", samples.problems[place]))
                found[place] = [draw.choice(chosen), *draw.sample(wrong, self.many)]
        return found

    def _grade(
        self, path: "Path", samples: PolicySamples, sets: dict[int, list[int]], device: str
    ) -> dict[str, float]:
        from posttrain.learning.rollouts.strategies.base import DrawnSamples
        from posttrain.learning.rollouts.strategies.best_of_n import BestOfNStrategy

        rewards_PN = rewards_of(path, samples, device)
        exact = ranks = pairs = 0.0
        for place, numbers in sets.items():
            one, *many = rewards_PN[place, numbers].tolist()
            exact += all(one > each for each in many)
            # Among equals it stands last, as in the authors' code.
            ranks += 1 / (1 + sum(each >= one for each in many))
            pairs += one > many[0]
        drawn = DrawnSamples([[None]] * len(samples.texts), samples.correct_PN, rewards_PN)
        gold = float(BestOfNStrategy().solved(drawn, self.best_of).mean())
        return {
            "accuracy": exact / len(sets),
            "mrr": ranks / len(sets),
            "pairs": pairs / len(sets),
            f"best_of_{self.best_of}": gold,
            "problems": float(len(sets)),
        }

    def _foretold(self, figures: dict[str, dict[str, float]]) -> dict[str, float]:
        import torch

        from posttrain.learning.maths.ranks import rank_correlation

        gold = torch.tensor([each[f"best_of_{self.best_of}"] for each in figures.values()])
        told = {}
        for name, metric in (("foretold", "accuracy"), ("foretold_by_pairs", "pairs")):
            values = torch.tensor([each[metric] for each in figures.values()])
            correlation = rank_correlation(values, gold) if len(figures) > 1 else None
            if correlation is not None:
                told[name] = correlation
        if len(told) > 1:
            told["lead"] = told["foretold"] - told["foretold_by_pairs"]
        return told
