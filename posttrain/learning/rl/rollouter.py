"""What makes generations: problems are drawn, rollouts made of them, and what they earn asked."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from posttrain.data.schemas import Problem
from posttrain.learning.curriculum.base import (
    ProblemPool,
    ProblemStream,
)
from posttrain.learning.curriculum.start import (
    refuse_draw,
    start_sampler,
    told_apart,
    with_room,
)
from posttrain.learning.rl.config import RlConfig
from posttrain.learning.rl.generation import Generation, numbers_of_the_draw
from posttrain.learning.rl.instructed import Instructed, start_instructed
from posttrain.learning.rl.joined import Joined, start_joined
from posttrain.learning.rl.producers.base import (
    Production,
    SamplingRound,
    Workbench,
    refuse_produced,
    start_producer,
)
from posttrain.learning.rl.rollout import Group, marked, result_of
from posttrain.learning.rl.rollout_batch import informative_groups
from posttrain.learning.rl.selections.base import selected
from posttrain.learning.rollouts.engines.base import Prompt, SamplingParams
from posttrain.learning.rollouts.scoring import problems_of
from posttrain.stage.context import StageContext
from posttrain.stage.seeds import purpose_seed


@dataclass(frozen=True)
class Draft:
    """One round of a generation: what its rollouts are to be of, before there are any."""

    config: RlConfig
    """The numbers that are drawn with."""
    chosen: Sequence[int]
    """Places of the problems."""
    problems: Sequence[Problem]
    prompts: Sequence[Prompt]
    at: SamplingRound
    carried: Sequence[str] = ()
    """Ids of the problems that the production is at work on since an earlier round."""


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
    instructed: Instructed | None = None
    """What stands before the problems, where the recipe has something stand there."""
    joined: Joined | None = None
    """What joins groups, where the recipe lets anything join them."""

    @cached_property
    def places(self) -> Mapping[str, int]:
        """Place of each problem by its id."""
        return {prompt.id: index for index, prompt in enumerate(self.prompts)}

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
        self.bench.engine.update(version)
        self.production.use(config.producer)
        self.bench.rewarder.use(config.reward, max_tokens=config.longest)
        chosen: list[int] = []
        groups: list[Group] = []
        rounds, wanted = 0, config.problems_per_step
        while wanted and rounds < config.draw.max_rounds:
            draft = self.draft(
                step,
                config,
                version=version,
                wanted=wanted,
                without=chosen,
                rounds=rounds,
                first_group=len(groups),
            )
            if not draft.chosen and not draft.carried:
                break
            chosen += [*draft.chosen, *(self.places[name] for name in draft.carried)]
            made = self.production.produce(draft.problems, draft.prompts, draft.at)
            groups += self._rewarded(draft, made)
            rounds += 1
            wanted = self._num_missing(groups, config, step=step)
        return self.selected(groups, config, step=step, version=version, rounds=rounds)

    def draft(
        self,
        step: int,
        config: RlConfig,
        *,
        version: int,
        wanted: int,
        without: Sequence[int] = (),
        rounds: int = 0,
        first_group: int = 0,
    ) -> Draft:
        """Draw the problems of one round of sampling.

        Args:
            step: 0-based step that the rollouts will be learned from in.
            config: The numbers that are drawn with.
            version: As `generate` is given it.
            wanted: Most problems, those included that the production is at work on.
            without: Places of the problems that the step has already.
            rounds: Rounds of sampling that the step has already.
            first_group: Number of the first group that the round makes.

        Returns:
            What rollouts are to be made of; no problem where there is none left.

        """
        if self.instructed is not None and not rounds:
            self.instructed.renew(step, config, version=version)
        carried = sorted(self.production.at_work_on)
        wanted -= len(carried)
        chosen: list[int] = []
        if wanted > 0:
            without = [*without, *(self.places[name] for name in carried)]
            chosen = list(self.stream.draw(wanted, seed=self.seed, step=step, without=without))
            known = len(self.problems)
            refuse_draw(config.draw.sampler, chosen, wanted, known=known, without=without)
        # The first round's seed is that of a step without further ones.
        purpose = ("rollouts", step, rounds) if rounds else ("rollouts", step)
        assert config.limit is not None
        params = SamplingParams(
            max_tokens=config.limit,
            temperature=config.temperature,
            num_samples=config.group_size,
            seed=purpose_seed(self.seed, *purpose),
        )
        problems = [self.problems[each] for each in chosen]
        if self.instructed is None:
            prompts = [self.prompts[each] for each in chosen]
        else:
            prompts = self.instructed.put_before(problems, step=step)
        prompts = told_apart(prompts, chosen, without)
        at = SamplingRound(step, params, first_group, version)
        return Draft(config, chosen, problems, prompts, at, carried)

    def generation(self, draft: Draft, made: Sequence[Group]) -> Generation:
        """Return the generation of a single round, whose rollouts were made elsewhere.

        Args:
            draft: What they were to be of.
            made: The rollouts, which have earned nothing yet.

        Returns:
            What `generate` gives; those that will be learned from are marked.

        """
        config = draft.config
        self.bench.rewarder.use(config.reward, max_tokens=config.longest)
        groups = self._rewarded(draft, made)
        at = draft.at
        return self.selected(groups, config, step=at.step, version=at.version, rounds=1)

    def observe(self, groups: Sequence[Group], *, step: int) -> None:
        """Let the stream of problems, and the instructions, know what became of a step.

        Args:
            groups: All of it, trained on or not.
            step: The 0-based step.

        """
        places = self.places
        self.stream.observe([result_of(group, places[group[0].problem_id]) for group in groups])
        if self.instructed is not None:
            self.instructed.observe(groups, step=step)

    def _rewarded(self, draft: Draft, made: Sequence[Group]) -> list[Group]:
        at_work = set(self.production.held_back)
        asked = [*draft.carried, *(problem.id for problem in draft.problems)]
        due = [each for each in asked if each not in at_work]
        refuse_produced(draft.config.producer, made, due=due)
        problems = [self.problems[self.places[group[0].problem_id]] for group in made]
        return self.bench.rewarder.rewarded(made, problems, step=draft.at.step)

    def selected(
        self, groups: Sequence[Group], config: RlConfig, *, step: int, version: int, rounds: int
    ) -> Generation:
        """Mark those of the groups of a step that are learned from, and let others join them.

        Args:
            groups: With what they earned.
            config: Of the step; says which teach something, and how many a step takes.
            step: 0-based step.
            version: Of the policy that draws what joins them.
            rounds: Rounds of sampling that they were drawn in.

        Returns:
            All of them; those that will be learned from are marked.

        """
        facts = {"rounds": float(rounds), **self.bench.rewarder.measured()}
        marked_groups = self._select(groups, config, step=step)
        if self.joined is not None:
            problems = [self.problems[self.places[group[0].problem_id]] for group in groups]
            at = self._round_of_additions(config, step=step, version=version)
            marked_groups, measured = self.joined.joined(marked_groups, problems, at)
            facts |= measured
        return Generation(step, marked_groups, facts, numbers_of_the_draw(config))

    def _round_of_additions(self, config: RlConfig, *, step: int, version: int) -> SamplingRound:
        assert config.limit is not None
        params = SamplingParams(
            max_tokens=config.limit,
            temperature=config.temperature,
            num_samples=1,
            seed=purpose_seed(self.seed, "additions", step),
        )
        return SamplingRound(step, params, 0, version)

    def _num_missing(self, groups: Sequence[Group], config: RlConfig, *, step: int) -> int:
        """Problems to draw so that, at the yield so far, enough groups will teach something."""
        if config.draw.max_rounds == 1:
            return 0
        num_good = sum(_teaches(each) for each in self._chosen(groups, config, step=step))
        lacking = max(0, config.problems_per_step - num_good)
        expected = math.ceil(lacking * len(groups) / num_good) if num_good else lacking
        return min(expected, config.problems_per_step)

    def _select(self, groups: Sequence[Group], config: RlConfig, *, step: int) -> list[Group]:
        """Mark what is learned from: the first groups that teach, as many as a step takes."""
        room, found = config.problems_per_step, []
        for group in self._chosen(groups, config, step=step):
            found.append(group if room else marked(group, trained=False))
            room -= bool(room) and _teaches(group)
        return found

    def _chosen(self, groups: Sequence[Group], config: RlConfig, *, step: int) -> list[Group]:
        """Mark of every group what would be learned from, were there room for it."""
        select, every = config.draw.select, config.draw.train_on == "all"
        return [
            selected(select, group, seed=self.seed, step=step)
            if every or informative
            else marked(group, trained=False)
            for group, informative in zip(groups, _have_signal(groups, config), strict=True)
        ]


def start_rollouter(
    config: RlConfig,
    pool: ProblemPool,
    bench: Workbench,
    context: StageContext,
    *,
    count: int,
    inputs: Mapping[str, Path] | None = None,
) -> Rollouter:
    """Start what makes the generations of a run.

    Args:
        config: Parameters of the run; its numbers may be schedules.
        pool: The problems, and what is known of them.
        bench: What draws from the policy, and what rewards.
        context: Seed and channels of the stage.
        count: Most problems of a step.
        inputs: Of the stage by port; what joins groups asks some of them.

    Returns:
        It, before it has drawn anything.

    Raises:
        UserError: The problem sampler cannot begin from this pool, or draws what the producer
            cannot make.

    """
    room, draw = bench.engine.context_length, config.draw
    pool, prompts = with_room(pool, bench.tokenizer, room, note=context.note)
    stream = start_sampler(
        draw.sampler,
        replace(pool, steps=config.steps),
        count=count,
        sources=draw.sources,
        most_of_one_answer=draw.most_of_one_answer,
    )
    problems = problems_of(pool.problems)
    production = start_producer(config.producer, bench, sampler=draw.sampler)
    instructed = None
    if draw.instructions is not None:
        instructed = start_instructed(
            draw.instructions, problems, prompts, bench, production, seed=context.seed
        )
    joined = None
    if draw.additions is not None:
        joined = start_joined(draw.additions, bench, inputs or {}, room=room)
    return Rollouter(problems, prompts, stream, bench, production, context.seed, instructed, joined)


def _have_signal(groups: Sequence[Group], config: RlConfig) -> list[bool]:
    """Judged on what the recipe filters by, not on a reward that lengths alone may shape."""
    return informative_groups(groups, config.algorithm_at_work.advantage, by=config.reward.filter)


def _teaches(group: Group) -> bool:
    """Whether a group has what is learned from; a selection may have left nothing."""
    return any(rollout.trained for rollout in group)
