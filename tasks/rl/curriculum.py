"""Which problems to practise on: those that the policy solves sometimes.

A group of rollouts that all succeed, or all fail, has no advantage and teaches nothing. What a
problem promises is the spread of a rollout's reward, sqrt(p(1-p)) at solve rate p, so problems are
drawn in proportion to it.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import polars as pl
import torch
from torch import Tensor

from posttrain.errors import UserError
from posttrain.sampling.noise import Keys, purpose_seed, row_keys, uniforms

_PRIOR = 2.0
"""Attempts, at the rate of its stratum, that every problem is taken to have had."""
_MEMORY = 0.98
"""What attempts count for one step later, as the policy moves on."""


class Curriculum:
    """Solved and failed attempts of every problem, and draws that follow from them.

    A problem's expected solve rate leans on that of its stratum (its source and difficulty, say):
    wholly where it was never attempted, and the more the older its attempts are.
    """

    def __init__(
        self,
        ids: Sequence[str],
        strata: Sequence[Hashable],
        *,
        solved_N: Sequence[float],
        attempts_N: Sequence[float],
    ) -> None:
        self.ids = ids
        self._keys: dict[int, Keys] = {}
        numbers = {stratum: number for number, stratum in enumerate(dict.fromkeys(strata))}
        self.stratum_N = torch.tensor([numbers[stratum] for stratum in strata])
        self.solved_N = torch.tensor(solved_N, dtype=torch.float64)
        self.attempts_N = torch.tensor(attempts_N, dtype=torch.float64)

    def rates(self) -> Tensor:
        """Expected solve rate of every problem, `[N]`; 1/2 for a stratum without attempts."""
        sums = torch.zeros(int(self.stratum_N.max()) + 1, dtype=torch.float64)
        solved_S = sums.index_add(0, self.stratum_N, self.solved_N)
        attempts_S = sums.index_add(0, self.stratum_N, self.attempts_N)
        usual_N = ((solved_S + 0.5) / (attempts_S + 1))[self.stratum_N]
        return (self.solved_N + _PRIOR * usual_N) / (self.attempts_N + _PRIOR)

    def signal(self) -> Tensor:
        """sqrt(p(1-p)) of every problem at its expected solve rate, `[N]`."""
        rate_N = self.rates()
        return (rate_N * (1 - rate_N)).sqrt()

    def draw(self, count: int, *, seed: int, step: int) -> list[int]:
        """Indices of `count` different problems, each drawn in proportion to its signal.

        Weighted sampling without replacement by exponential races (Efraimidis and Spirakis, 2006);
        the noise depends on seed, step and problem alone.
        """
        if seed not in self._keys:
            self._keys[seed] = row_keys(purpose_seed(seed, "curriculum"), self.ids, 1)
        finish_N = -torch.log1p(-uniforms(self._keys[seed], step).double()) / self.signal()
        order = torch.argsort(finish_N, stable=True)
        return [int(index) for index in order[:count]]

    def observe(
        self, indices: Sequence[int], *, solved: Sequence[float], attempts: Sequence[int]
    ) -> None:
        """Let a step pass: what was known fades, and new attempts at `indices` are added."""
        chosen = torch.tensor(indices)
        self.solved_N = _MEMORY * self.solved_N
        self.attempts_N = _MEMORY * self.attempts_N
        self.solved_N[chosen] += torch.tensor(solved, dtype=torch.float64)
        self.attempts_N[chosen] += torch.tensor(attempts, dtype=torch.float64)

    def state_dict(self) -> dict[str, Any]:
        """The counts."""
        return {"solved": self.solved_N.clone(), "attempts": self.attempts_N.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up counts written by `state_dict`."""
        self.solved_N, self.attempts_N = state["solved"].clone(), state["attempts"].clone()


def start_curriculum(
    problems: pl.DataFrame, rates: pl.DataFrame, *, policy: str, draw: int, where: str
) -> Curriculum:
    """Begin from the probe's counts; a problem that was not probed has none.

    Refuses rates of another policy, rates of other problems, rates without a difference, and
    fewer problems than one step draws.
    """
    others = sorted(set(rates["policy"]) - {policy})
    if others:
        raise UserError(
            f"{where}: the solve rates are those of policy {others[0][:12]}, but this one is"
            f" {policy[:12]}; probe the policy that RL starts from"
        )
    if len(problems) < draw:
        raise UserError(
            f"{where}: there are {len(problems)} problems, but every step draws {draw} different"
            " ones; lower problems_per_step or add problems"
        )
    counts = {row[0]: row[1:] for row in rates.select("problem_id", "solved", "attempts").rows()}
    ids = problems["id"].to_list()
    solved, attempts = zip(*(counts.get(name, (0, 0)) for name in ids), strict=True)
    if not any(attempts):
        raise UserError(
            f"{where}: none of the {len(problems)} problems was probed; connect the solve rates of"
            " these problems"
        )
    if sum(solved) in (0, sum(attempts)):
        outcome, remedy = ("succeeded", "harder") if sum(solved) else ("failed", "easier")
        raise UserError(
            f"{where}: all {sum(attempts)} probed attempts {outcome}, so no group would differ in"
            f" its rewards; take {remedy} problems, or a policy that solves some of them"
        )
    strata = problems.select("source", "difficulty").rows()
    return Curriculum(ids, strata, solved_N=solved, attempts_N=attempts)
