"""One generation: problems chosen, rollouts produced, and those marked that are learned from."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from posttrain.data.schemas import Problem
from posttrain.learning.curriculum.base import GroupResult, ProblemStream
from posttrain.learning.rl.advantages import informative_groups
from posttrain.learning.rl.buffer import Generation
from posttrain.learning.rl.config import RlConfig
from posttrain.learning.rl.producers.base import Production, SamplingRound, Workbench
from posttrain.learning.rl.rollout import Group, marked
from posttrain.learning.rollouts.engines.base import Prompt, SamplingParams
from posttrain.stage.seeds import purpose_seed


@dataclass(frozen=True)
class Rollouter:
    """Makes generations, with rounds of sampling until enough groups are informative.

    Sampling on where groups have no gradient is DAPO's dynamic sampling (arXiv 2503.14476, eq. 11).
    """

    problems: Sequence[Problem]
    prompts: Sequence[Prompt]
    """The problems' prompts as tokens, in the same order."""
    stream: ProblemStream
    bench: Workbench
    production: Production
    seed: int
    """Seed of the run."""

    def generate(self, step: int, config: RlConfig, *, version: int) -> Generation:
        """Produce what one step will learn from, with the present policy.

        Rounds go on until enough groups are informative, the cap is met, or no problem is left.
        The draws depend on the seed, the step, the stream, the production and the policy alone.

        Args:
            step: 0-based step that the rollouts will be learned from in.
            config: The numbers that are drawn with.
            version: What the samples say of the policy: the steps that it has learned from.

        Returns:
            All groups that were drawn; those that will be learned from are marked.

        """
        self.bench.sampler.update(version)
        self.bench.rewarder.stack = config.reward
        chosen: list[int] = []
        groups: list[Group] = []
        rounds, wanted = 0, config.problems_per_step
        while wanted and rounds < config.draw.max_rounds:
            more = self.stream.draw(wanted, seed=self.seed, step=step, without=chosen)
            if not more:
                break
            chosen += more
            groups += self._produce(more, step, rounds, config, first_group=len(groups))
            rounds += 1
            wanted = _num_missing(groups, config)
        selected = _select(groups, config)
        return Generation.drawn(step, selected, config, facts={"rounds": float(rounds)})

    def observe(self, groups: Sequence[Group]) -> None:
        """Let the stream of problems know what became of the groups of one step."""
        place = {prompt.id: index for index, prompt in enumerate(self.prompts)}
        self.stream.observe([_result_of(group, place[group[0].problem_id]) for group in groups])

    def _produce(
        self, chosen: Sequence[int], step: int, index: int, config: RlConfig, *, first_group: int
    ) -> list[Group]:
        # The first round's seed is that of a step without further ones.
        purpose = ("rollouts", step, index) if index else ("rollouts", step)
        params = SamplingParams(
            max_tokens=config.max_tokens,
            temperature=config.temperature,
            num_samples=config.group_size,
            seed=purpose_seed(self.seed, *purpose),
        )
        return self.production.produce(
            [self.problems[each] for each in chosen],
            [self.prompts[each] for each in chosen],
            SamplingRound(step, params, first_group),
        )


def _num_missing(groups: Sequence[Group], config: RlConfig) -> int:
    """Problems to draw so that, at the yield so far, enough groups will be informative."""
    if config.draw.max_rounds == 1:
        return 0
    num_good = sum(informative_groups(groups, config.algorithm.advantage))
    lacking = max(0, config.problems_per_step - num_good)
    expected = math.ceil(lacking * len(groups) / num_good) if num_good else lacking
    return min(expected, config.problems_per_step)


def _select(groups: Sequence[Group], config: RlConfig) -> list[Group]:
    """Mark the first informative groups, as many as a step learns from, as trained."""
    room, selected = config.problems_per_step, []
    is_informative = informative_groups(groups, config.algorithm.advantage)
    for group, informative in zip(groups, is_informative, strict=True):
        trained = room > 0 and (config.draw.train_on == "all" or informative)
        room -= trained
        selected.append(marked(group, trained=trained))
    return selected


def _result_of(group: Group, problem: int) -> GroupResult:
    return GroupResult(
        problem=problem,
        rewards=tuple(rollout.reward for rollout in group),
        solved=tuple(rollout.solved for rollout in group),
        lengths=tuple(rollout.num_drawn for rollout in group),
        advantages=tuple(rollout.mean_advantage for rollout in group),
    )
