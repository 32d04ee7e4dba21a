"""Answers of the policy, beside whether its greedy answer is right already."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

from posttrain.learning.rl.producers.base import SamplingRound, Workbench
from posttrain.learning.rl.producers.plain import Plain, PlainProduction

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem
    from posttrain.learning.rl.rollout import Group
    from posttrain.learning.rollouts.engines.base import Prompt


class GreedyFirst(Plain):
    """Answer each problem greedily before its group is drawn, and tell if that is right.

    Every rollout then has the fact `greedy_solved`, by which the selection `greedy_failed` chooses.
    The greedy answers are not learned from and not stored.
    """

    SOURCE: ClassVar[str] = (
        "SELF, arXiv 2510.02230; mail-research/SELF-llm-interference at d17634b,"
        " verl/trainer/ppo/ray_trainer.py (RayMaxPPOTrainer)"
    )

    kind: Literal["greedy_first"] = "greedy_first"  # type: ignore[assignment]

    def start(self, bench: Workbench) -> "GreedyFirstProduction":
        """Begin a run."""
        return GreedyFirstProduction(bench)


@dataclass(frozen=True)
class GreedyFirstProduction(PlainProduction):
    """Samples twice; it has no state."""

    def produce(
        self, problems: Sequence["Problem"], prompts: Sequence["Prompt"], at: SamplingRound
    ) -> list["Group"]:
        """Answer greedily, then as `PlainProduction.produce` does; see `Production.produce`."""
        greedy = replace(at.params, temperature=0.0, num_samples=1)
        answers = [sample.text for sample in self.bench.engine.sample(prompts, greedy)]
        scores = self.bench.rewarder.known(list(zip(answers, problems, strict=True)))
        # Only an answer that is right in full is left out; an unjudged one is not known to be.
        solved = [float(score.value is not None and score.value >= 1) for score in scores]
        groups = super().produce(problems, prompts, at)
        return [
            [row._replace(facts=(*row.facts, ("greedy_solved", each))) for row in group]
            for group, each in zip(groups, solved, strict=True)
        ]
