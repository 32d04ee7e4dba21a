"""What was sampled and not yet learned from: generations in waiting, and the one that is open."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from posttrain.learning.rl.batch import TrainSample
from posttrain.learning.rl.config import RlConfig
from posttrain.learning.rl.rollout import Group, from_plain, marked, plain
from posttrain.stage.seeds import shuffler

_OF_THE_DRAW = ("temperature", "max_tokens", "group_size")


@dataclass
class Generation:
    """All rollouts that were drawn for one 0-based step, with facts of their sampling."""

    step: int
    groups: list[Group]
    facts: dict[str, float] = field(default_factory=dict)
    numbers: dict[str, float] = field(default_factory=dict)
    """Numbers of the config that the learner must use as they were drawn with."""

    @classmethod
    def drawn(
        cls, step: int, groups: list[Group], config: RlConfig, *, facts: dict[str, float]
    ) -> "Generation":
        """Keep groups with the numbers of the config that they were drawn with."""
        return cls(step, groups, facts, {name: getattr(config, name) for name in _OF_THE_DRAW})

    def drawn_with(self, config: RlConfig) -> RlConfig:
        """Return the config of a later step, with the numbers that the rollouts were drawn with.

        Log-probabilities are those of the sampler only at its own temperature.

        Args:
            config: Of the later step.

        Returns:
            The same config where the numbers are the same.

        """
        changed = {n: v for n, v in self.numbers.items() if getattr(config, n) != v}
        return config.model_copy(update=changed) if changed else config

    def untrained(self) -> list[Group]:
        """Return the groups, none of them learned from: the run ended before."""
        return [marked(group, trained=False) for group in self.groups]

    def state_dict(self) -> dict[str, Any]:
        """Return plain values by name."""
        return {
            "step": self.step,
            "rollouts": plain(self.groups),
            "facts": dict(self.facts),
            "numbers": dict(self.numbers),
        }

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> "Generation":
        """Return the generation that `state_dict` gave."""
        facts, numbers = dict(state["facts"]), dict(state["numbers"])
        return cls(int(state["step"]), from_plain(state["rollouts"]), facts, numbers)


class Queue:
    """Generations in the order in which they will be learned from; empty where nothing is ahead."""

    def __init__(self) -> None:
        self.waiting: deque[Generation] = deque()
        self.num_drawn = 0

    def put(self, generation: Generation) -> None:
        """Append the next one."""
        self.waiting.append(generation)
        self.num_drawn += 1

    def take(self) -> Generation:
        """Remove the oldest."""
        return self.waiting.popleft()

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

    def open(self, generation: Generation, samples: Sequence[Sequence[TrainSample]]) -> None:
        """Begin to learn from a generation.

        Args:
            generation: All that was drawn for the step.
            samples: What bears loss of it, group by group.

        """
        self.generation = generation
        self.samples = [list(group) for group in samples]
        self.num_done, self.totals = 0, {}

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

    def learned(self, metrics: Mapping[str, float]) -> None:
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
