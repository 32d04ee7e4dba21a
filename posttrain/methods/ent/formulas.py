"""The losses of methods in this folder by their papers, apart from the product's own.

Statistics are over all rollouts that the step trains on, sums over those of one update.
"""

import math
from random import Random

import torch
from torch import Tensor

from posttrain.methods.formula import FormulaRollouts, clipped_gain, deviation, mean


def forking_tokens(rows: FormulaRollouts) -> Tensor:
    """Equation 6, on DAPO: the fifth of the tokens of highest entropy, each five times."""
    a = rows.standardized(rewards=rows.docked_for_length())
    before = [rows.entropy(i, rows.log_all_old) for i in range(len(a))]
    ranked = torch.cat(before).sort(descending=True).values
    # Equal entropies, as of the first tokens of a group, are equal up to rounding.
    least = ranked[math.ceil(0.2 * len(ranked) - 1e-9) - 1] - 1e-5
    kept = int((ranked >= least).sum())

    def loss(i: int) -> Tensor:
        forks = (before[i] >= least).double() * len(ranked) / kept
        return -forks * clipped_gain(rows.ratio(i), a[i], 0.2, 0.28)

    return rows.over_tokens(loss)


def turn_sizes(rows: FormulaRollouts, i: int) -> list[int]:
    """Drawn tokens of each turn of a row."""
    return [span["end"] - span["begin"] for span in rows.stored[i]["spans"] if span["drawn"]]


def empg(rows: FormulaRollouts) -> Tensor:
    """Equations 8 to 12 with sharpnesses of 1 and clarity 0.1."""
    plain = rows.standardized(plus=1e-6)
    sizes = [turn_sizes(rows, i) for i in range(len(plain))]
    unsure = [
        [part.mean().item() for part in torch.split(rows.entropy(i, rows.log_all_old), size)]
        for i, size in enumerate(sizes)
    ]
    flat = [each for row in unsure for each in row]
    low, high = min(flat), max(flat)
    scaled = [[(each - low) / (high - low + 1e-8) for each in row] for row in unsure]
    usual = mean([math.exp(-each) for row in scaled for each in row])
    made = []
    for a, row in zip(plain, scaled, strict=True):
        clear = [math.exp(-each) for each in row[1:]] + [0.0]
        made.append([math.exp(-h) / usual * a + 0.1 * f for h, f in zip(row, clear, strict=True)])
    middle = mean([each for row in made for each in row])

    def loss(i: int) -> Tensor:
        parts = [torch.full((n,), a - middle) for a, n in zip(made[i], sizes[i], strict=True)]
        return -clipped_gain(rows.ratio(i), torch.cat(parts).double(), 0.2, 0.2)

    return rows.over_tokens(loss)


def epo(rows: FormulaRollouts) -> Tensor:
    """The bonus alone: where the penalty is paid it is a constant."""
    a = rows.standardized(plus=1e-6)

    def loss(i: int) -> Tensor:
        ratio = rows.ratio(i)
        gain = clipped_gain(ratio, a[i], 0.2, 0.2)
        if a[i] < 0:
            gain = gain.clamp(min=3.0 * a[i])
        return -gain + 0.001 * rows.k3(i) - 0.001 * rows.entropy(i)

    return rows.over_tokens(loss)


def lp_reg(rows: FormulaRollouts) -> Tensor:
    """Equation of the objective, on the policy that drew."""
    a = rows.standardized(plus=1e-6)
    bad = [rows.log_engine[i] for i in range(len(a)) if a[i] < 0]
    ranked = torch.cat(bad).sort().values
    marked = int(0.01 * len(ranked))
    least = ranked[marked - 1].item() if marked else -math.inf

    def loss(i: int) -> Tensor:
        log_p, whole = rows.log_p[i], rows.log_all[i].detach()
        floor = whole.amax(-1) + math.log(0.02)
        mass = torch.where(whole >= floor[:, None], whole.exp(), 0.0).sum(-1).log()
        now = log_p.detach()
        held = (rows.log_engine[i] <= least) & (now >= floor) & (mass < 0) & torch.tensor(a[i] < 0)
        behind = now - mass - log_p
        k3 = (behind.exp() - 1 - behind).clamp(max=10.0)
        return -clipped_gain(rows.ratio(i), a[i], 0.99, 9.0) + torch.where(held, k3, 0.0)

    return rows.over_tokens(loss)


def past(rows: FormulaRollouts) -> list[int]:
    """The rows of the step's first update; none in that update itself."""
    moved = any(not torch.allclose(rows.log_p[i], rows.log_old[i]) for i in rows.chosen)
    return [i for i in range(len(rows.reward)) if i not in rows.chosen] if moved else []


def entropy_band(rows: FormulaRollouts) -> Tensor:
    """A bonus of 0.01 from half to one and a half of the mean so far, level above, twice below."""
    a = rows.standardized(plus=1e-6)
    before = [rows.entropy(i, rows.log_all_old) for i in past(rows)]
    usual = torch.cat(before).mean() if before else None

    def loss(i: int) -> Tensor:
        h = rows.entropy(i)
        gain = h
        if usual is not None:
            gain = h - (h - 1.5 * usual).clamp(min=0) - (0.5 * usual - h).clamp(min=0)
        return -clipped_gain(rows.ratio(i), a[i], 0.2, 0.2) - 0.01 * gain

    return rows.over_tokens(loss)


def nucleus(whole: Tensor) -> Tensor:
    """Entropy of the smallest set of tokens with 0.8 of a distribution, row by row."""
    found = []
    for log_V in whole:
        kept: list[int] = []
        for token in log_V.detach().argsort(descending=True, stable=True).tolist():
            kept.append(token)
            if log_V.detach()[kept].exp().sum() >= 0.8:
                break
        inside = log_V[kept].log_softmax(-1)
        found.append(-(inside.exp() * inside).sum())
    return torch.stack(found)


def peak(parts: list[Tensor]) -> Tensor:
    """Mean of the upper fifth of all tokens' numbers."""
    flat = torch.cat(parts)
    return flat[flat >= torch.quantile(flat.detach(), 0.8)].mean()


def siren(rows: FormulaRollouts) -> Tensor:
    """Dr. GRPO, and 0.005 times the square of the change since the first update."""
    a = rows.centered()
    now = peak([nucleus(rows.log_all[i]) for i in rows.chosen])
    before = past(rows)
    first = peak([nucleus(rows.log_all_old[i]) for i in before]) if before else now.detach()
    sums = [-clipped_gain(rows.ratio(i), a[i], 0.28, 0.28).sum() for i in rows.chosen]
    tokens = sum(rows.length(i) for i in rows.chosen)
    part = tokens / (len(sums) * rows.limit)
    return torch.stack(sums).mean() / rows.limit + 0.005 * part * (now - first) ** 2


def aepo(rows: FormulaRollouts) -> Tensor:
    """GRPO among the policy's own, and the likelihood of what was drawn at another temperature."""
    own = [i for i, row in enumerate(rows.stored) if row["origin"] == "policy"]

    def advantage(i: int) -> float:
        group = [rows.reward[j] for j in rows.members(i) if j in own]
        alike = max(group) == min(group)
        return 0.0 if alike else (rows.reward[i] - mean(group)) / deviation(group)

    def loss(i: int) -> Tensor:
        if i not in own:
            return -rows.log_p[i]
        return -clipped_gain(rows.ratio(i), advantage(i), 0.2, 0.2)

    return rows.over_tokens(loss)


def evol_rl(rows: FormulaRollouts) -> Tensor:
    """GRPO as verl has it, with a wider clip above and a bonus for entropy."""
    a = rows.standardized(plus=1e-6)

    def loss(i: int) -> Tensor:
        plain = -clipped_gain(rows.ratio(i, rows.log_old), a[i], 0.2, 0.28)
        held = plain.clamp(max=-3 * a[i]) if a[i] < 0 else plain
        return held + 0.001 * rows.k3(i).clamp(max=10.0) - 0.003 * rows.entropy(i)

    return rows.over_tokens(loss)


def cure(rows: FormulaRollouts) -> Tensor:
    """DAPO with the dual clip at 10, over the tokens that a branch drew itself."""
    a = rows.standardized(rewards=rows.docked_for_length())

    def loss(i: int) -> Tensor:
        plain = -clipped_gain(rows.ratio(i), a[i], 0.2, 0.28)
        return plain.clamp(max=-10 * a[i]) if a[i] < 0 else plain

    return rows.over_tokens(loss)


def covariances(rows: FormulaRollouts, a: list[float]) -> Tensor:
    """(A - mean A)(log p - mean log p) of every drawn token of the step, row after row."""
    sizes = torch.tensor([rows.length(i) for i in range(len(a))])
    paid = torch.tensor(a, dtype=torch.float64).repeat_interleave(sizes)
    said = torch.cat(list(rows.log_engine)).double()
    return (paid - paid.mean()) * (said - said.mean())


def cut_by_row(rows: FormulaRollouts, flat: Tensor) -> list[Tensor]:
    """Cut what stands row after row into rows."""
    return list(torch.split(flat, [rows.length(i) for i in range(len(rows.reward))]))


def clip_cov(rows: FormulaRollouts) -> Tensor:
    """The authors' code on the policy that drew, with a chance by what was drawn."""
    a = rows.standardized(plus=1e-6)
    found = covariances(rows, a)
    inside = [place for place, c in enumerate(found.tolist()) if 1.0 < c < 5.0]
    ids = [str(token) for i in range(len(a)) for token in rows.drawn(i)]
    chance = Random(":".join(["covariance", *ids]))
    most = max(1, math.floor(0.0002 * len(ids)))
    kept = torch.ones_like(found)
    kept[chance.sample(inside, min(most, len(inside)))] = 0.0
    own = cut_by_row(rows, kept)
    return rows.over_tokens(lambda i: -own[i] * clipped_gain(rows.ratio(i), a[i], 0.9999, 1.0))


def kl_cov(rows: FormulaRollouts) -> Tensor:
    """The authors' code on the policy that drew; a move within rounding is none."""
    a = rows.standardized(plus=1e-6)
    found = covariances(rows, a)
    least = found.sort(descending=True).values[max(1, math.floor(0.002 * len(found))) - 1]
    held = cut_by_row(rows, found >= least - 1e-6)

    def loss(i: int) -> Tensor:
        moved = (rows.log_p[i] - rows.log_engine[i]).abs() - 1e-5
        return -rows.ratio(i) * a[i] + torch.where(held[i], moved.clamp(min=0), 0.0)

    return rows.over_tokens(loss)
