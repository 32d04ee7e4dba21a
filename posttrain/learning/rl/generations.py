"""Generations: drawn for a step, in waiting, and the one that is open to be learned from."""

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from posttrain.learning.rl.ahead import Ahead, remembers
from posttrain.learning.rl.batch import TokenValues, TrainSample, bearing_loss, with_advantages
from posttrain.learning.rl.config import RlConfig
from posttrain.learning.rl.credit import asks_old, training_samples, with_old_logprobs
from posttrain.learning.rl.familiar import only
from posttrain.learning.rl.generation import Generation
from posttrain.learning.rl.learner import PolicyLearner
from posttrain.learning.rl.passes import ModelPasses
from posttrain.learning.rl.rollout import Group, Rollout, learned_from, marked
from posttrain.learning.rl.rollouter import Draft, Rollouter
from posttrain.stage.errors import UserError
from posttrain.stage.seeds import shuffler


class _Begun(NamedTuple):
    """A generation whose rollouts are being made elsewhere."""

    draft: Draft
    made_by: Any
    """What `Ahead.made` is asked with."""


class Queue:
    """Generations in the order in which they will be learned from; empty where nothing is ahead.

    With `ahead`, those of later steps are made by other processes while the learner works. They are
    drawn with the weights, and rewarded in the order, of one process that does it all by itself.
    """

    def __init__(self, ahead: Ahead | None = None) -> None:
        self.ahead = ahead
        self.waiting: deque[Generation] = deque()
        self.begun: deque[_Begun] = deque()
        self.num_drawn = 0
        self._seconds: dict[str, float] = {}

    @property
    def num_ahead(self) -> int:
        """Generations that are drawn or begun, and not learned from."""
        return len(self.waiting) + len(self.begun)

    def fill(
        self, rollouter: Rollouter, learner: PolicyLearner, config: RlConfig, *, step: int
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
            # What is to be learned from at once nobody else has sooner.
            if self.ahead is None or self.num_drawn == step:
                self._draw(rollouter, learner, config, step=step)
            else:
                self._begin(self.ahead, rollouter, learner, config, step=step)
            self.num_drawn += 1

    def oldest(self, rollouter: Rollouter, learner: PolicyLearner) -> Generation:
        """Take the generation that is to be learned from next; waits until it is drawn.

        Args:
            rollouter: What rewards.
            learner: What the engine was held against.

        Returns:
            All groups that were drawn for the step.

        """
        if not self.waiting:
            self._finish(rollouter, learner)
        return self.waiting.popleft()

    def settle(self, rollouter: Rollouter, learner: PolicyLearner) -> None:
        """Wait until all that was begun is drawn, as a checkpoint must hold it.

        Args:
            rollouter: What rewards.
            learner: What the engine was held against.

        """
        while self.begun:
            self._finish(rollouter, learner)

    def seconds(self) -> dict[str, float]:
        """Return what the clock says of generations that others made since this was asked last."""
        found, self._seconds = self._seconds, {}
        return found

    def _draw(
        self, rollouter: Rollouter, learner: PolicyLearner, config: RlConfig, *, step: int
    ) -> None:
        generation = rollouter.generate(self.num_drawn, config, version=step)
        # Later, and of what was carried over, the policy's drift is in the gap, too: only now does
        # it show an engine that computes something else.
        if generation.step > step or generation.was_carried:
            gap = learner.gap(generation.groups)
            learner.check_gap(gap["logprob_gap"])
            generation.facts |= gap
        self.waiting.append(generation)

    def _begin(
        self,
        ahead: Ahead,
        rollouter: Rollouter,
        learner: PolicyLearner,
        config: RlConfig,
        *,
        step: int,
    ) -> None:
        if remembers(rollouter.production) or _tries_by_a_memory(rollouter):
            self.settle(rollouter, learner)
        draft = rollouter.draft(
            self.num_drawn, config, version=step, wanted=config.problems_per_step
        )
        begun = ahead.begin(draft, rollouter.production, version=step)
        self.begun.append(_Begun(draft, begun))

    def _finish(self, rollouter: Rollouter, learner: PolicyLearner) -> None:
        assert self.ahead is not None
        started = time.perf_counter()
        draft, begun = self.begun.popleft()
        made = self.ahead.made(begun)
        waited = time.perf_counter() - started
        if made.production is not None:
            rollouter.production.load_state_dict(made.production)
        generation = rollouter.generation(draft, made.groups)
        learner.check_gap(made.gap["logprob_gap"])
        generation.facts |= made.gap
        self.waiting.append(generation)
        for name, seconds in (("waiting", waited), ("generating", made.seconds)):
            self._seconds[name] = self._seconds.get(name, 0.0) + seconds

    def state_dict(self) -> dict[str, Any]:
        """Return all that waits, as plain values by name; what is begun must be settled before."""
        assert not self.begun
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

    def take(self, oldest: Generation, learner: PolicyLearner, config: RlConfig) -> None:
        """Open a generation, and fix what all updates of its step will learn from it.

        Args:
            oldest: The generation.
            learner: Computes old and reference log-probabilities.
            config: Of the step; what belongs to the drawing is taken as it was then.

        """
        generation = _drop_stale(oldest, bound=config.oldest)
        learner.passes.config = generation.drawn_with(config)
        trained = learned_from(generation.groups)
        earned, samples = step_samples(learner, generation.groups, step=generation.step)
        if learner.beside.replaying is not None:
            # Of what is recalled the policy's drift is in the gap: it is held of this step's alone.
            learner.check_gap(learner.gap(generation.groups)["logprob_gap"])
            generation.facts["replayed"] = float(learner.beside.replaying.num_recalled)
        # Later a whole step may well be masked; from the first one on, no run would ever learn.
        if generation.step == 0:
            _refuse_untaught(trained, samples, max_tokens=config.limit)
        num_masked = sum(sample is None for group in earned for sample in group)
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
        if self.num_done == 0 and asks_old(learner.passes.config, stale=self.is_stale):
            first = self._places(seed=seed)[: min(self._minibatches, len(self.samples))]
            self.samples = with_old_logprobs(learner.passes, self.samples, first)
        plan, step = self.plan(seed=seed), self.generation.step
        while self.num_done < len(plan):
            index = self.num_done
            metrics = learner.update(plan[index], step=step, index=index, seed=seed)
            if learner.beside.rehearsing is not None and index == len(plan) - 1:
                metrics |= learner.beside.rehearsing.close(
                    learner, self.generation.groups, step=step
                )
            yield metrics

    def plan(self, *, seed: int) -> list[list[TrainSample]]:
        """Return the samples of every update: whole groups, shuffled anew in every epoch.

        Args:
            seed: Seed of the run; the order depends on it, the step and the epoch alone.

        """
        return [
            [sample for place in places for sample in self.samples[place]]
            for places in self._places(seed=seed)
        ]

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

    def _places(self, *, seed: int) -> list[list[int]]:
        """The groups of every update."""
        assert self.generation is not None
        step, found = self.generation.step, []
        num_parts = min(self._minibatches, len(self.samples))
        for epoch in range(self._epochs):
            order = list(range(len(self.samples)))
            if epoch or num_parts > 1:
                shuffler(seed, "minibatches", step, epoch).shuffle(order)
            found += [order[index::num_parts] for index in range(num_parts)]
        return found

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


def _tries_by_a_memory(rollouter: Rollouter) -> bool:
    """Whether what is tried for the next draft earns by what was rewarded before."""
    return rollouter.instructed is not None and bool(rollouter.bench.rewarder.state_dict())


def step_samples(
    learner: PolicyLearner, groups: Sequence[Group], *, step: int
) -> tuple[list[list[TrainSample | None]], list[list[TrainSample]]]:
    """Fix what all updates of a step learn from.

    Args:
        learner: What learns, with the config of the step.
        groups: All that were drawn for it.
        step: 0-based step.

    Returns:
        A sample for each rollout that the learner is given, None for one that bears no loss; and
        the samples that the step learns from, group by group: those, and what is recalled.

    """
    earned = learner.training_samples(learned_from(groups), step=step)
    recalled = recalled_samples(learner.passes, step=step)
    replay = learner.passes.config.updates.replay
    if learner.beside.replaying is not None and replay is not None:
        again = learner.beside.replaying.recall(groups, replay, step=step)
        recalled += bearing_loss(training_samples(again, learner.passes, step=step))
    return earned, [*bearing_loss(earned), *recalled]


def recalled_samples(passes: ModelPasses, *, step: int) -> list[list[TrainSample]]:
    """Turn the stored episodes that a step learns from into samples, as `training_samples` does.

    Args:
        passes: The models, and what learns from stored episodes.
        step: 0-based step.

    Returns:
        The samples that bear loss, a group for each episode; none where none are stored.

    """
    if passes.turn_learner is None:
        return []

    def logprobs_of(rows: Sequence[Rollout]) -> Sequence[TokenValues]:
        return passes.rows([TrainSample.bare(row) for row in rows], passes.present_logprobs)

    recalled = passes.turn_learner.recall(passes.config, logprobs_of, step=step)
    samples = training_samples([each.rows for each in recalled], passes, step=step)
    taught = [
        [
            only(sample, tokens) if sample is not None and any(tokens) else None
            for sample, tokens in zip(group, each.taught, strict=True)
        ]
        for group, each in zip(samples, recalled, strict=True)
    ]
    return bearing_loss(taught)


def _drop_stale(generation: Generation, *, bound: int) -> Generation:
    """Take groups with a rollout older than the bound out of what is learned from."""

    def kept(group: Group) -> Group:
        if generation.step - min(rollout.policy_version for rollout in group) <= bound:
            return group
        return marked(group, trained=False)

    groups = [kept(group) for group in generation.groups]
    num_stale = sum(
        was.trained and not now.trained
        for old, new in zip(generation.groups, groups, strict=True)
        for was, now in zip(old, new, strict=True)
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
