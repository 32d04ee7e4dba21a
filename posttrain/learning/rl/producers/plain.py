"""Answers of the policy to the problem as it is."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from posttrain.learning.episodes.environments.single import Single
from posttrain.learning.rl.producers.base import Producer, Production, SamplingRound, Workbench

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem
    from posttrain.learning.episodes.environments.base import Environment
    from posttrain.learning.rl.rollout import Group
    from posttrain.learning.rollouts.engines.base import Prompt


class Plain(Producer):
    """Sample a group of answers to every problem, each by the policy alone.

    Source: GRPO, arXiv 2402.03300, algorithm 1: a group of answers to each question.
    """

    REPEATS: ClassVar[bool] = True

    kind: Literal["plain"] = "plain"

    def played_in(self) -> "Environment":
        """Nothing answers; see `Producer.played_in`."""
        return Single()

    def start(self, bench: Workbench) -> Production:
        """Begin a run."""
        return PlainProduction(bench)


@dataclass(frozen=True)
class PlainProduction(Production):
    """Samples; it has no state."""

    bench: Workbench

    def produce(
        self, problems: Sequence["Problem"], prompts: Sequence["Prompt"], at: SamplingRound
    ) -> list["Group"]:
        """Draw as many answers to each problem as a group has; see `Production.produce`."""
        from posttrain.learning.rl.drawn import as_groups

        samples = self.bench.engine.sample(prompts, at.params)
        return as_groups(samples, problems, prompts, first=at.first_group)
