"""The slot of the problem samplers: what a part of it implements."""

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from posttrain.stage.slots import Part

if TYPE_CHECKING:
    import polars as pl
    from torch import Tensor

    from posttrain.learning.rollouts.engines.rng import RowKeys


@dataclass(frozen=True)
class GroupResult:
    """What became of one group of rollouts; the tuples have one entry per rollout, ``[G]``."""

    problem: int
    """Row of the problem in the table that the sampler was started with."""
    rewards: tuple[float | None, ...]
    """What was learned from; None where it could not be judged."""
    solved: tuple[bool | None, ...]
    """Whether the answer counts as right; None where it could not be judged."""
    lengths: tuple[int, ...]
    """Drawn tokens."""
    advantages: tuple[float, ...]
    """Mean advantage of the drawn tokens, as it was learned from."""


@dataclass(frozen=True)
class ProblemPool:
    """What a sampler is started with."""

    problems: "pl.DataFrame"
    """A PROBLEMS table; samplers speak of its rows by their index."""
    solve_rates: "pl.DataFrame | None" = None
    """A SOLVE_RATES table, where one is connected."""
    policy: str = ""
    """Digest of the policy that training starts from."""
    where: str = "solve_rates"
    """Where the solve rates are from, for errors."""
    places: Callable[[], str] = str
    """Says in words where the problems' verifiers look for an answer, for errors."""
    steps: int | None = None
    """Most steps that the run draws for, for a sampler that plans over them; it may stop before.
    None where no run draws."""

    def rates(self) -> dict[str, float]:
        """Share of the attempts that solved each problem, by id; only of those that were tried."""
        if self.solve_rates is None:
            return {}
        rows = self.solve_rates.select("problem_id", "solved", "attempts").rows()
        return {name: solved / attempts for name, solved, attempts in rows if attempts}


class ProblemStream:
    """A started sampler: draws problems, and hears what became of them.

    Its state is part of the checkpoint, so everything that `observe` changes must be in
    `state_dict`. Draws may depend on seed, step and state alone: then a resumed run draws what the
    uninterrupted one would have.
    """

    @abstractmethod
    def draw(
        self, count: int, *, seed: int, step: int, without: Collection[int] = ()
    ) -> Sequence[int]:
        """Choose the problems of one round of sampling.

        Args:
            count: Problems wanted.
            seed: Seed of the run.
            step: 0-based step that the rollouts will be learned from in.
            without: Problems that earlier rounds of the same step have drawn.

        Returns:
            Indices of problems, at most `count`, different ones unless the part `REPEATS`; fewer
            where no more are left.

        """
        raise NotImplementedError

    def observe(self, results: Sequence[GroupResult]) -> None:
        """Take in all groups of one step, trained on or not, once their advantages are known."""

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes, as tensors and plain values."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""

    def metrics(self) -> dict[str, float]:
        """Figures after the last observed step, by the names in the part's `metrics`."""
        return {}


class StepCount(ProblemStream):
    """Counts the steps that were learned from: all the state of a stream that goes by the step."""

    observed = 0

    def observe(self, results: Sequence[GroupResult]) -> None:  # noqa: ARG002 - the step decides
        """Count the step; see `ProblemStream.observe`."""
        self.observed += 1

    def state_dict(self) -> dict[str, Any]:
        """How many steps were learned from."""
        return {"observed": self.observed}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        self.observed = int(state["observed"])


class WeightedStream(ProblemStream):
    """Draws each problem with a probability in proportion to its weight."""

    def __init__(self, ids: Sequence[str]) -> None:
        self.ids = ids
        self._keys: dict[int, RowKeys] = {}

    @abstractmethod
    def weights(self) -> "Tensor":
        """Weight of every problem, not negative, ``[P]`` float64."""
        raise NotImplementedError

    def draw(
        self, count: int, *, seed: int, step: int, without: Collection[int] = ()
    ) -> Sequence[int]:
        """Sample by weight without replacement, by exponential races.

        The noise depends on seed, step and problem alone, so a later round of a step goes on where
        the earlier ones, its `without`, ended.

        Source: Efraimidis and Spirakis, "Weighted random sampling with a reservoir" (2006).

        Args:
            count: How many problems.
            seed: Of the run.
            step: Number of the step.
            without: Indices that were drawn in this step already.

        Returns:
            Indices of problems, the first to finish first.

        """
        import torch

        from posttrain.learning.rollouts.engines.rng import row_keys, uniforms
        from posttrain.stage.seeds import purpose_seed

        if seed not in self._keys:
            self._keys[seed] = row_keys(purpose_seed(seed, "curriculum"), self.ids, 1)
        finish_P = -torch.log1p(-uniforms(self._keys[seed], step).double()) / self.weights()
        order: list[int] = torch.argsort(finish_P, stable=True).tolist()
        taken = set(without)
        return [index for index in order if index not in taken][:count] if taken else order[:count]


class ProblemSampler(Part):
    """Which problems a step's rollouts are drawn for."""

    METRICS: ClassVar[Mapping[str, str]] = {}
    """What its streams measure, with a description; in the curve as ``rl/curriculum_<name>``, which
    schedules and the rule for stopping may follow. What is measured and not declared ends the run.
    """

    REPEATS: ClassVar[bool] = False
    """True where it draws a problem several times in a step, each a group of its own."""

    @property
    def metrics(self) -> Mapping[str, str]:
        """Those of `METRICS` that it measures as its fields are; all, if not overridden."""
        return self.METRICS

    def start(self, pool: ProblemPool) -> ProblemStream:
        """Begin to draw from a pool of problems.

        A part that cannot do without the pool's solve rates has ``"solve_rates"`` in `NEEDS`.

        Args:
            pool: Problems, and what is known of them.

        Returns:
            A stream of problems, with its state.

        """
        raise NotImplementedError
