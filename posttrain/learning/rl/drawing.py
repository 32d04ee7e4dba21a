"""One generation: problems drawn, answers sampled and scored, and what is to be learnt from."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from posttrain.data.schemas import Problem
from posttrain.learning.curriculum.base import GroupResult, ProblemStream
from posttrain.learning.rewards.config import Rewarder, RewardStack
from posttrain.learning.rewards.verify import VerifierCache
from posttrain.learning.rl.advantages import informative_groups
from posttrain.learning.rl.buffer import Generation
from posttrain.learning.rl.config import RlConfig
from posttrain.learning.rl.rollout import (
    Group,
    answers_of,
    as_groups,
    marked,
    rewarded,
)
from posttrain.learning.rollouts.engines.base import Prompt, Sampler, SamplingParams
from posttrain.stage.seeds import purpose_seed


@dataclass(frozen=True)
class Drawing:
    """Where generations come from; all that changes is the stream of problems."""

    problems: Sequence[Problem]
    prompts: Sequence[Prompt]
    stream: ProblemStream
    sampler: Sampler
    config: RlConfig
    seed: int
    rewarder: Rewarder = field(default_factory=lambda: Rewarder(RewardStack(), VerifierCache()))

    def draw(self, step: int, *, version: int) -> Generation:
        """Sample what a step will learn from, with the present policy.

        Rounds of sampling go on until enough groups have signal, the cap is met, or no problem is
        left. The draws depend on the seed, the step, the stream and the policy alone.

        Args:
            step: Number of the step, from 0.
            version: Stamped onto the samples as the policy's version.

        Returns:
            The groups of rollouts, and how many rounds it took.

        """
        self.sampler.update(version)
        chosen: list[int] = []
        groups: list[Group] = []
        rounds, wanted = 0, self.config.problems_per_step
        while wanted and rounds < self.config.draw.max_rounds:
            more = self.stream.draw(wanted, seed=self.seed, step=step, without=chosen)
            if not more:
                break
            chosen += more
            groups += self._sample(more, step=step, round_=rounds, first=len(groups))
            rounds += 1
            wanted = self._missing(groups)
        return Generation(step, self._select(groups), {"rounds": float(rounds)})

    def observe(self, groups: Sequence[Group]) -> None:
        """Let the stream of problems know what became of the groups of one step."""
        place = {prompt.id: index for index, prompt in enumerate(self.prompts)}
        self.stream.observe([_result(group, place[group[0].problem_id]) for group in groups])

    def informative(self, groups: Sequence[Group]) -> list[bool]:
        """Tell which groups have something to teach, by their rewards alone."""
        return informative_groups(groups, self.config.algorithm.advantage)

    def _sample(self, chosen: Sequence[int], *, step: int, round_: int, first: int) -> list[Group]:
        config, purpose = self.config, ("rollouts", step, round_)
        prompts = [self.prompts[index] for index in chosen]
        problems = [self.problems[index] for index in chosen]
        samples = self.sampler.sample(
            prompts,
            SamplingParams(
                max_tokens=config.max_tokens,
                temperature=config.temperature,
                num_samples=config.group_size,
                seed=purpose_seed(self.seed, *(purpose if round_ else purpose[:2])),
            ),
        )
        groups = as_groups(samples, problems, prompts, first=first)
        answers = [answers_of(group, each) for group, each in zip(groups, problems, strict=True)]
        return rewarded(groups, self.rewarder.earned(answers, step=step))

    def _missing(self, groups: Sequence[Group]) -> int:
        """Problems to draw so that, at the yield so far, enough groups will have signal."""
        if self.config.draw.max_rounds == 1:
            return 0
        num_good = sum(self.informative(groups))
        lacking = max(0, self.config.problems_per_step - num_good)
        expected = math.ceil(lacking * len(groups) / num_good) if num_good else lacking
        return min(expected, self.config.problems_per_step)

    def _select(self, groups: Sequence[Group]) -> list[Group]:
        """The first groups that teach, as many as a step learns from, are marked as trained."""
        room, selected = self.config.problems_per_step, []
        for group, informative in zip(groups, self.informative(groups), strict=True):
            trained = room > 0 and (self.config.draw.train_on == "all" or informative)
            room -= trained
            selected.append(marked(group, trained=trained))
        return selected


def _result(group: Group, problem: int) -> GroupResult:
    return GroupResult(
        problem=problem,
        rewards=tuple(rollout.reward for rollout in group),
        solved=tuple(rollout.solved for rollout in group),
        lengths=tuple(rollout.num_drawn for rollout in group),
        advantages=tuple(rollout.mean_advantage for rollout in group),
    )
