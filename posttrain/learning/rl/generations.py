"""Generations: drawn for a step, in waiting, and the one that is open to be learned from."""

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from posttrain.data.schemas import Problem
from posttrain.learning.curriculum.base import GroupResult, ProblemSampler, ProblemStream
from posttrain.learning.episodes.environments.base import POLICY
from posttrain.learning.rl.batch import (
    TrainSample,
    bearing_loss,
    informative_groups,
    with_advantages,
)
from posttrain.learning.rl.config import RlConfig
from posttrain.learning.rl.generation import Generation, numbers_of_the_draw
from posttrain.learning.rl.learner import PolicyLearner
from posttrain.learning.rl.producers.base import Production, SamplingRound, Workbench
from posttrain.learning.rl.rollout import Group, marked
from posttrain.learning.rl.wholes import wholes
from posttrain.learning.rollouts.engines.base import Prompt, SamplingParams
from posttrain.stage.errors import UserError
from posttrain.stage.seeds import purpose_seed, shuffler
from posttrain.stage.slots import name_of


class Queue:
    """Generations in the order in which they will be learned from; empty where nothing is ahead."""

    def __init__(self) -> None:
        self.waiting: deque[Generation] = deque()
        self.num_drawn = 0

    def fill(
        self, rollouter: "Rollouter", learner: PolicyLearner, config: RlConfig, *, step: int
    ) -> None:
        """Draw as far ahead of 0-based `step` as the staleness allows, with the present policy.

        Where a generation will wait, the engine is held against the trainer at once.

        Args:
            rollouter: What draws.
            learner: What the engine is held against.
            config: The numbers that are drawn with.
            step: The step that is to be learned from next.

        """
        while self.num_drawn <= min(step + config.staleness, config.steps - 1):
            generation = rollouter.generate(self.num_drawn, config, version=step)
            # Later the policy's drift is in the gap, too: only now does it show an engine that
            # computes something else.
            if generation.step > step:
                gap = learner.gap(generation.groups[0])
                learner.check_gap(gap["logprob_gap"])
                generation.facts |= gap
            self.waiting.append(generation)
            self.num_drawn += 1

    def state_dict(self) -> dict[str, Any]:
        """Return all that waits, as plain values by name."""
        waiting = [generation.state_dict() for generation in self.waiting]
        return {"num_drawn": self.num_drawn, "waiting": waiting}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` wrote."""
        self.num_drawn = int(state["num_drawn"])
        self.waiting = deque(Generation.of(each) for each in state["waiting"])


class Buffer:
    """The generation that is being learned from, over several optimizer updates.

    What the first update fixes for the later ones (advantages from a critic, log-probabilities of
    the policy before the first update) is kept with the rollouts, as the weights that it was made
    from are gone by then.
    """

    def __init__(self, *, epochs: int, minibatches: int) -> None:
        self._epochs, self._minibatches = epochs, minibatches
        self.generation: Generation | None = None
        self.samples: list[list[TrainSample]] = []
        self.num_done = 0
        self.totals: dict[str, list[float]] = {}

    def take(self, queue: Queue, learner: PolicyLearner, config: RlConfig) -> None:
        """Open the oldest generation, and fix what all updates of its step will learn from it.

        Args:
            queue: Generations that wait; the oldest is taken out.
            learner: Computes old and reference log-probabilities.
            config: Of the step; what belongs to the drawing is taken as it was then.

        """
        oldest = queue.waiting.popleft()
        generation = _drop_stale(oldest, bound=config.staleness)
        learner.passes.config = generation.drawn_with(config)
        trained = [group for group in generation.groups if group[0].trained]
        earned = learner.training_samples(trained, step=generation.step)
        samples = bearing_loss(earned)
        # Later a whole step may well be masked; from the first one on, no run would ever learn.
        if generation.step == 0:
            _refuse_untaught(trained, samples, max_tokens=config.limit)
        num_masked = sum(map(len, trained)) - sum(map(len, samples))
        if num_masked:
            generation.facts["rollouts_masked"] = float(num_masked)
        groups = with_advantages(generation.groups, earned)
        self.open(replace(generation, groups=groups), samples)

    def open(self, generation: Generation, samples: list[list[TrainSample]]) -> None:
        """Begin to learn from a generation.

        Args:
            generation: All that was drawn for the step.
            samples: What bears loss of it, group by group.

        """
        self.generation, self.samples = generation, samples
        self.num_done, self.totals = 0, {}

    @property
    def is_stale(self) -> bool:
        """True where any rollout that is learned from is of an older policy than the step's own."""
        assert self.generation is not None
        step = self.generation.step
        return any(each.policy_version != step for group in self.samples for each in group)

    @property
    def num_planned(self) -> int:
        """Updates that the open generation makes in all."""
        return self._epochs * min(self._minibatches, len(self.samples))

    def updates(self, learner: PolicyLearner, *, seed: int) -> Iterator[dict[str, float]]:
        """Make the updates that are left, one by one; each must be noted before the next is asked.

        Args:
            learner: What learns.
            seed: Seed of the run.

        Yields:
            What each update measured.

        """
        assert self.generation is not None
        plan, step = self.plan(seed=seed), self.generation.step
        while self.num_done < len(plan):
            index = self.num_done
            yield learner.update(plan[index], step=step, index=index, seed=seed)

    def plan(self, *, seed: int) -> list[list[TrainSample]]:
        """Return the samples of every update: whole groups, shuffled anew in every epoch.

        Args:
            seed: Seed of the run; the order depends on it, the step and the epoch alone.

        """
        assert self.generation is not None
        step, plan = self.generation.step, []
        num_parts = min(self._minibatches, len(self.samples))
        for epoch in range(self._epochs):
            order = list(self.samples)
            if epoch or num_parts > 1:
                shuffler(seed, "minibatches", step, epoch).shuffle(order)
            for index in range(num_parts):
                plan.append([sample for group in order[index::num_parts] for sample in group])
        return plan

    def note(self, metrics: Mapping[str, float]) -> None:
        """Count one update as done, with what it measured."""
        self.num_done += 1
        for name, value in metrics.items():
            self.totals.setdefault(name, []).append(value)

    def close(self) -> Generation:
        """Return the generation, which is now learned from, and wait for the next."""
        generation, self.generation = self.generation, None
        assert generation is not None
        self.samples, self.num_done = [], 0
        return generation

    def state_dict(self) -> dict[str, Any]:
        """Return the open generation, its samples and the number of updates; nothing if closed."""
        if self.generation is None:
            return {}
        return {
            "generation": self.generation.state_dict(),
            "samples": [[sample.state_dict() for sample in group] for group in self.samples],
            "num_done": self.num_done,
            "totals": {name: list(values) for name, values in self.totals.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` wrote."""
        self.generation = None
        if state:
            samples = [[TrainSample.of_state(row) for row in group] for group in state["samples"]]
            self.open(Generation.of(state["generation"]), samples)
            self.num_done = int(state["num_done"])
            self.totals = {name: list(values) for name, values in state["totals"].items()}


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
        self.bench.engine.update(version)
        self.production.use(config.producer)
        self.bench.rewarder.use(config.reward, max_tokens=config.longest)
        chosen: list[int] = []
        groups: list[Group] = []
        rounds, wanted = 0, config.problems_per_step
        while wanted and rounds < config.draw.max_rounds:
            more = list(self.stream.draw(wanted, seed=self.seed, step=step, without=chosen))
            _refuse_draw(
                more, wanted, without=chosen, sampler=config.draw.sampler, of=self.problems
            )
            if not more:
                break
            chosen += more
            groups += self._produce(more, step, rounds, config, first_group=len(groups))
            rounds += 1
            wanted = _num_missing(groups, config)
        selected = _select(groups, config)
        facts = {"rounds": float(rounds), **self.bench.rewarder.measured()}
        return Generation(step, selected, facts, numbers_of_the_draw(config))

    def observe(self, groups: Sequence[Group]) -> None:
        """Let the stream of problems know what became of the groups of one step."""
        place = {prompt.id: index for index, prompt in enumerate(self.prompts)}
        self.stream.observe([_result_of(group, place[group[0].problem_id]) for group in groups])

    def _produce(
        self, chosen: Sequence[int], step: int, index: int, config: RlConfig, *, first_group: int
    ) -> list[Group]:
        # The first round's seed is that of a step without further ones.
        purpose = ("rollouts", step, index) if index else ("rollouts", step)
        assert config.limit is not None
        params = SamplingParams(
            max_tokens=config.limit,
            temperature=config.temperature,
            num_samples=config.group_size,
            seed=purpose_seed(self.seed, *purpose),
        )
        problems = [self.problems[each] for each in chosen]
        prompts = [self.prompts[each] for each in chosen]
        groups = self.production.produce(
            problems, prompts, SamplingRound(step, params, first_group)
        )
        if len(groups) != len(problems) or not all(groups):
            raise UserError(
                f"rl: {name_of(config.producer)}: `produce` was asked for {len(problems)}"
                f" problems and gave {len(groups)} groups; let it give a group of rollouts for each"
            )
        return self.bench.rewarder.rewarded(groups, problems, step=step)


def _refuse_draw(
    drawn: Sequence[int],
    wanted: int,
    *,
    without: Sequence[int],
    sampler: ProblemSampler,
    of: Sequence[Problem],
) -> None:
    """Refuse none in the first round, more than were wanted, problems drawn twice or not there."""
    fresh = set(drawn) & set(range(len(of))) - set(without)
    if len(fresh) != len(drawn) or len(drawn) > wanted or not (drawn or without):
        raise UserError(
            f"rl: {name_of(sampler)}: `draw` was asked for {wanted} problems and gave"
            f" {list(drawn)}; let it give one to so many different numbers below {len(of)}, none"
            " of which it gave in this step before"
        )


def _num_missing(groups: Sequence[Group], config: RlConfig) -> int:
    """Problems to draw so that, at the yield so far, enough groups will be informative."""
    if config.draw.max_rounds == 1:
        return 0
    num_good = sum(_have_signal(groups, config))
    lacking = max(0, config.problems_per_step - num_good)
    expected = math.ceil(lacking * len(groups) / num_good) if num_good else lacking
    return min(expected, config.problems_per_step)


def _select(groups: Sequence[Group], config: RlConfig) -> list[Group]:
    """Mark the first groups that are learned from, as many as a step takes, as trained."""
    room, selected = config.problems_per_step, []
    for group, informative in zip(groups, _have_signal(groups, config), strict=True):
        trained = room > 0 and (config.draw.train_on == "all" or informative)
        room -= trained
        selected.append(marked(group, trained=trained))
    return selected


def _have_signal(groups: Sequence[Group], config: RlConfig) -> list[bool]:
    """Judged on what the recipe filters by, not on a reward that lengths alone may shape."""
    return informative_groups(groups, config.algorithm_at_work.advantage, by=config.reward.filter)


def _result_of(group: Group, problem: int) -> GroupResult:
    """What became of a problem: by the role that is given it, and no other that the policy has."""
    attempts = [whole for whole in wholes(group) if whole.role == POLICY]
    return GroupResult(
        problem=problem,
        rewards=tuple(rollout.reward for rollout in attempts),
        solved=tuple(rollout.solved for rollout in attempts),
        lengths=tuple(rollout.num_drawn for rollout in attempts),
        advantages=tuple(rollout.mean_advantage for rollout in attempts),
    )


def _drop_stale(generation: Generation, *, bound: int) -> Generation:
    """Take groups with a rollout older than the bound out of what is learned from."""

    def kept(group: Group) -> Group:
        if generation.step - min(rollout.policy_version for rollout in group) <= bound:
            return group
        return marked(group, trained=False)

    groups = [kept(group) for group in generation.groups]
    num_stale = sum(
        len(new)
        for old, new in zip(generation.groups, groups, strict=True)
        if old[0].trained and not new[0].trained
    )
    facts = generation.facts | {"rollouts_stale": float(num_stale)}
    return replace(generation, groups=groups, facts=facts)


def _refuse_untaught(
    trained: Sequence[Group], samples: Sequence[Sequence[TrainSample]], *, max_tokens: int | None
) -> None:
    """Refuse, before the first update, a limit of tokens that cuts off and so masks everything."""
    if trained and not samples and all(r.truncated for group in trained for r in group):
        raise UserError(
            f"rl: every rollout of the first step was cut off at max_tokens {max_tokens}, and"
            " reward.truncated or algorithm.advantage.truncated leaves those out, so no token bears"
            " loss; raise max_tokens, or set them to counts and keep"
        )
