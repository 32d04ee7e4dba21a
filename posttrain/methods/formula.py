"""What the formula of a paper is given, and the statistics that several of them take.

A formula is written by hand from its paper: plain torch, row by row, nothing of the product but
this. It stands in `formulas.py` of the folder that the method's file is in, as a function of the
method's name: `methods/pg/formulas.py` has `def careful(rows): ...` for `methods/pg/careful.yaml`.
`posttrain method check --gradients` holds the stage's gradients against it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor


@dataclass
class FormulaRollouts:
    """The rollouts of a step that are trained on, one entry each; those of the update are `chosen`.

    `log_p` is what the gradient is taken to; all else is numbers. Statistics are over all rollouts,
    sums over those of one update.
    """

    log_p: list[Tensor]
    """Of the policy that learns, at each drawn token."""
    log_old: list[Tensor]
    """Of the policy before the first update of the step."""
    log_engine: list[Tensor]
    """Of what sampled."""
    log_ref: list[Tensor]
    """Of the policy that the run started from."""
    reward: list[float]
    group: list[int]
    chosen: list[int]
    """Places of the rollouts that this update learns from."""
    values: list[Tensor]
    """Of the critic, at each drawn token; empty without one."""
    limit: int
    """The longest answer, in tokens."""
    log_all: Sequence[Tensor] = ()
    """Of the whole vocabulary at each drawn token, ``[T, V]``, of the policy that learns; where the
    loss is of the drawn tokens alone, that is `log_p`."""
    log_all_old: Sequence[Tensor] = ()
    """The same of the policy before the first update of the step."""
    log_all_ref: Sequence[Tensor] = ()
    """The same of the reference."""
    stored: Sequence[Mapping[str, Any]] = ()
    """The rows as the stage stored them, for a formula that reads more."""
    worths: "Sequence[TurnWorths]" = ()
    """What a critic of turns says of each row; nothing without one."""
    vocabulary: Sequence[Tensor] = ()
    """Mean log-probability of all tokens where each one was drawn, of the policy that learns."""
    vocabulary_old: Sequence[Tensor] = ()
    """The same of the policy before the first update of the step."""

    def members(self, row: int) -> list[int]:
        """Name the rows of a row's group, it among them."""
        return [other for other, name in enumerate(self.group) if name == self.group[row]]

    def length(self, row: int) -> int:
        """Count the drawn tokens of a row."""
        return len(self.log_engine[row])

    def drawn(self, row: int) -> list[int]:
        """Name the tokens that the policy drew of a row."""
        stored = self.stored[row]
        ids, spans = stored["token_ids"], [span for span in stored["spans"] if span["drawn"]]
        return [token for span in spans for token in ids[span["begin"] : span["end"]]]

    def ratio(self, row: int, old: list[Tensor] | None = None) -> Tensor:
        """Divide probabilities by those of what sampled, or of `old`, token by token."""
        before = self.log_engine if old is None else old
        return (self.log_p[row] - before[row]).exp()

    def k3(self, row: int) -> Tensor:
        """Estimate the divergence from the reference at each token, never negative."""
        behind = self.log_ref[row] - self.log_p[row]
        return behind.exp() - 1 - behind

    def entropy(self, row: int, whole: Sequence[Tensor] | None = None) -> Tensor:
        """Of the policy that learns at each drawn token of a row, or by the tables of another."""
        log_all = (self.log_all if whole is None else whole)[row]
        return -(log_all.exp() * log_all).sum(-1)

    def over_tokens(self, loss: Callable[[int], Tensor]) -> Tensor:
        """Sum a row's loss by tokens, over the tokens of the update."""
        total = torch.stack([loss(row).sum() for row in self.chosen]).sum()
        return total / sum(self.length(row) for row in self.chosen)

    def over_answers(self, loss: Callable[[int], Tensor]) -> Tensor:
        """Average a row's loss by tokens, then over the answers of the update."""
        return torch.stack([loss(row).mean() for row in self.chosen]).mean()

    def standardized(self, *, plus: float = 0.0, rewards: list[float] | None = None) -> list[float]:
        """(r - mean) / (std + plus) within each group; 0 where all are alike."""
        rewards = self.reward if rewards is None else rewards
        found = []
        for row, reward in enumerate(rewards):
            found.append(z_score(reward, [rewards[each] for each in self.members(row)], plus=plus))
        return found

    def standardized_by_answer(self) -> list[float]:
        """(r - mean) / std within each group, where several rows are of one answer."""
        found = []
        for row, reward in enumerate(self.reward):
            of = {self.stored[other]["episode"]: self.reward[other] for other in self.members(row)}
            found.append(z_score(reward, list(of.values())))
        return found

    def docked_for_length(self) -> list[float]:
        """Take from 0 to 1 off the rewards over the last fifth of the limit: DAPO, equation 13."""
        buffer = max(1, round(self.limit / 5))
        over = [max(0, self.length(row) - (self.limit - buffer)) for row in range(len(self.reward))]
        return [r - min(1.0, more / buffer) for r, more in zip(self.reward, over, strict=True)]

    def centered(self) -> list[float]:
        """The reward less the mean of its group."""
        return [
            reward - mean([self.reward[other] for other in self.members(row)])
            for row, reward in enumerate(self.reward)
        ]

    def against_others(self, rewards: list[float]) -> list[float]:
        """The reward less the mean of the others' in the group."""
        return [
            reward - mean([rewards[other] for other in self.members(row) if other != row])
            for row, reward in enumerate(rewards)
        ]

    def paid(self, beta: float, log_p: list[Tensor] | None = None) -> list[Tensor]:
        """Take a divergence off every token's reward, of what sampled or of `log_p`."""
        sides = zip(self.log_engine if log_p is None else log_p, self.log_ref, strict=True)
        found = [-beta * (own - ref) for own, ref in sides]
        for each, reward in zip(found, self.reward, strict=True):
            each[-1] += reward
        return found

    def estimated(self, paid: list[Tensor], *, gamma: float = 1.0) -> list[Tensor]:
        """Generalized advantages of the critic's values at lambda 0.95, whitened."""
        both = zip(paid, self.values, strict=True)
        return whitened([generalized(p, v, 0.95, gamma=gamma) for p, v in both], less=1)


@dataclass
class TurnWorths:
    """What a critic of turns says of an episode: two numbers for each turn, one by each head."""

    said: list[list[float]] = field(default_factory=list)
    """Of what was said in it."""
    begun: list[list[float]] = field(default_factory=list)
    """Of the situation in which it begins."""
    said_behind: list[list[float]] = field(default_factory=list)
    """By the critic that follows; the same as `said` where none does."""
    begun_behind: list[list[float]] = field(default_factory=list)
    """Likewise."""


@dataclass
class FormulaPairs:
    """Log-probabilities of the tokens of each completion of an update's pairs, a tensor each."""

    chosen: list[Tensor]
    rejected: list[Tensor]
    extra: list[Tensor]
    """Of the mismatched completions, or of the reference's samples."""
    ref_chosen: list[Tensor]
    ref_rejected: list[Tensor]
    ref_extra: list[Tensor]
    label_prob: list[float] = field(default_factory=list, kw_only=True)
    """How likely the chosen completion of each pair is the better one; 1 where it is sure."""
    gap: list[float] = field(default_factory=list, kw_only=True)
    """By how much the chosen one of each pair was scored higher, of a loss that reads that."""

    def expected(self, loss: Callable[[Tensor], Tensor]) -> Tensor:
        """Average a loss of margins over pairs, each as it stands and the other way round."""
        margins = self.margins()
        sure = torch.tensor(self.label_prob, dtype=margins.dtype)
        return (sure * loss(margins) + (1 - sure) * loss(-margins)).mean()

    def margins(self, of: Callable[[Tensor], Tensor] = torch.sum) -> Tensor:
        """log-ratio of the chosen less that of the rejected."""
        sides = (self.chosen, self.ref_chosen, self.rejected, self.ref_rejected)
        return torch.stack(
            [of(c) - of(rc) - of(r) + of(rr) for c, rc, r, rr in zip(*sides, strict=True)]
        )

    def sums(self, side: list[Tensor]) -> Tensor:
        """Add up the tokens of each completion of a side."""
        return torch.stack([each.sum() for each in side])

    def means(self, side: list[Tensor]) -> Tensor:
        """Average the tokens of each completion of a side."""
        return torch.stack([each.mean() for each in side])


def mean(numbers: Sequence[float]) -> float:
    """Average."""
    return sum(numbers) / len(numbers)


def deviation(numbers: Sequence[float], *, less: int = 1) -> float:
    """Standard deviation over n - `less`."""
    center = mean(numbers)
    return math.sqrt(sum((x - center) ** 2 for x in numbers) / (len(numbers) - less))


def z_score(reward: float, group: Sequence[float], *, plus: float = 0.0) -> float:
    """(r - mean) / (std + plus) of a group; 0 where all are alike."""
    alike = max(group) == min(group)
    return 0.0 if alike else (reward - mean(group)) / (deviation(group) + plus)


def whitened(per_token: list[Tensor], *, less: int) -> list[Tensor]:
    """Mean 0 and deviation 1 over all tokens of the step."""
    flat: list[float] = torch.cat(per_token).tolist()
    spread = math.sqrt(deviation(flat, less=less) ** 2 + 1e-8)
    return [(each - mean(flat)) / spread for each in per_token]


def generalized(paid: Tensor, values: Tensor, lam: float, *, gamma: float = 1.0) -> Tensor:
    """Sum a critic's surprises at each token of an answer, discounted by `gamma` and `lam`."""
    behind, found, ahead = [*values.tolist()[1:], 0.0], [], 0.0
    for pay, value, following in zip(
        *(reversed(each) for each in (paid.tolist(), values.tolist(), behind)), strict=True
    ):
        ahead = pay + gamma * following - value + gamma * lam * ahead
        found.append(ahead)
    return torch.tensor(found[::-1], dtype=torch.float64)


def divergence_by_place(rows: FormulaRollouts, row: int) -> Tensor:
    """How far the distributions of a row's group are from their mean, from 0 to 1 by place."""
    members = rows.members(row)
    longest = max(rows.length(each) for each in members)
    num_tokens = rows.log_all[row].shape[-1]
    tables = []
    for each in members:
        table = torch.full((longest, num_tokens), -math.log(num_tokens)).double()
        table[: rows.length(each)] = rows.log_all[each].detach()
        tables.append(table)
    usual = torch.stack(tables).mean(0)
    away = [(usual - table).clamp(-11, 11) for table in tables]
    by_place = torch.stack([(each.exp() - each - 1).sum(-1) for each in away]).mean(0)
    scaled = (by_place - by_place.min()) / (by_place.max() - by_place.min() + 1e-8)
    return scaled[: rows.length(row)]


def clipped_gain(ratio: Tensor, advantage: float | Tensor, low: float, high: float) -> Tensor:
    """PPO's gain of each token."""
    return torch.minimum(ratio * advantage, ratio.clamp(1 - low, 1 + high) * advantage)
