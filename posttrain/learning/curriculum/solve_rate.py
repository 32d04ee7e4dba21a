"""Which problems to practise on: those that the policy solves sometimes.

A group of rollouts that all succeed, or all fail, has no advantage and teaches nothing. What a
problem promises is the spread of a rollout's reward, sqrt(p(1-p)) at solve rate p, so problems are
drawn in proportion to it. Where the recipe gives every source a share, the sources take turns by
their shares, and a problem is drawn so within its source.
"""

import math
from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from typing import Any

import polars as pl
import torch
from torch import Tensor

from posttrain.learning.rollouts.engines.noise import Keys, purpose_seed, row_keys, uniforms
from posttrain.stage.errors import UserError, nearest

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
        shares: "Shares | None" = None,
    ) -> None:
        self.ids = ids
        self.shares = shares
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

    def draw(self, count: int, *, seed: int, step: int, without: Collection[int] = ()) -> list[int]:
        """Indices of `count` different problems, each drawn in proportion to its signal.

        Weighted sampling without replacement by exponential races (Efraimidis and Spirakis, 2006);
        the noise depends on seed, step and problem alone, so a later round of a step goes on
        where the earlier ones, its `without`, ended. Fewer are returned where no more are left.
        """
        if seed not in self._keys:
            self._keys[seed] = row_keys(purpose_seed(seed, "curriculum"), self.ids, 1)
        finish_N = -torch.log1p(-uniforms(self._keys[seed], step).double()) / self.signal()
        order: list[int] = torch.argsort(finish_N, stable=True).tolist()
        taken = set(without)
        left = [index for index in order if index not in taken] if taken else order
        return left[:count] if self.shares is None else self.shares.draw(left, count)

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
        """The counts, and what the sources are owed."""
        owed = {} if self.shares is None else dict(self.shares.owed)
        return {"solved": self.solved_N.clone(), "attempts": self.attempts_N.clone(), "owed": owed}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up counts written by `state_dict`."""
        self.solved_N, self.attempts_N = state["solved"].clone(), state["attempts"].clone()
        if self.shares is not None:
            self.shares.owed = dict(state["owed"])

    def metrics(self) -> dict[str, float]:
        """Mean expected solve rate, and how much of the greatest signal the problems promise."""
        return {
            "curriculum_solve_rate": float(self.rates().mean()),
            "curriculum_signal": float(2 * self.signal().mean()),
        }


class Shares:
    """Turns of the sources: after any number of draws each has had its share, to within one.

    Every draw owes each source its share, and goes to the one that is owed most.
    """

    def __init__(self, shares: Mapping[str, float], sources: Sequence[str]) -> None:
        total = sum(shares.values())
        self.shares = {name: share / total for name, share in shares.items()}
        self.sources = sources
        self.owed = dict.fromkeys(shares, 0.0)

    def draw(self, order: Sequence[int], count: int) -> list[int]:
        """The next `count` of `order`, source by source in turn; a source that is out is passed."""
        lines: dict[str, Iterator[int]] = {
            name: iter([index for index in order if self.sources[index] == name])
            for name in self.shares
        }
        heads = {name: next(line, None) for name, line in lines.items()}
        chosen: list[int] = []
        while len(chosen) < count:
            waiting = {name: head for name, head in heads.items() if head is not None}
            if not waiting:
                break
            self.owed = {name: owed + self.shares[name] for name, owed in self.owed.items()}
            name = max(waiting, key=lambda each: self.owed[each])
            self.owed[name] -= 1
            chosen.append(waiting[name])
            heads[name] = next(lines[name], None)
        return chosen


def start_curriculum(
    problems: pl.DataFrame,
    rates: pl.DataFrame,
    *,
    policy: str,
    draw: int,
    where: str,
    sources: Mapping[str, float] | None = None,
) -> Curriculum:
    """Begin from the probe's counts; a problem that was not probed has none.

    Refuses rates of another policy, rates of other problems, rates without a difference,
    fewer problems than one step draws, and shares of sources that cannot give them.
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
    shares = _shares(sources, problems["source"].to_list(), draw=draw) if sources else None
    return Curriculum(ids, strata, solved_N=solved, attempts_N=attempts, shares=shares)


def _shares(shares: Mapping[str, float], sources: Sequence[str], *, draw: int) -> Shares:
    """Check the shares against what there is."""
    there = Counter(sources)
    for name, share in shares.items():
        if name not in there:
            raise UserError(
                f"rl.draw.sources: no problem has the source '{name}'{nearest(name, there)}"
            )
        wanted = math.ceil(share / sum(shares.values()) * draw)
        if wanted > there[name]:
            raise UserError(
                f"rl.draw.sources: the share of '{name}' is {wanted} problems per step, but there"
                f" are {there[name]}; lower its share or problems_per_step"
            )
    return Shares(shares, sources)
