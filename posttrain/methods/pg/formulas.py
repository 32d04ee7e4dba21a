"""The losses of methods in this folder by their papers, apart from the product's own."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from posttrain.methods.formula import (
    FormulaPairs,
    FormulaRollouts,
    clipped_gain,
    deviation,
    divergence_by_place,
    mean,
    whitened,
)

# Those of methods with a critic stand in a file of their own, and are looked for in this one.
from posttrain.methods.pg.formulas_of_critics import nlpo as nlpo
from posttrain.methods.pg.formulas_of_critics import oreal as oreal
from posttrain.methods.pg.formulas_of_critics import ppo as ppo
from posttrain.methods.pg.formulas_of_critics import t_ppo as t_ppo
from posttrain.methods.pg.formulas_of_critics import text2grad as text2grad


def default(rows: FormulaRollouts) -> Tensor:
    """Centered rewards, PPO's clip at 0.8 and 1.28, over tokens."""
    a = rows.centered()
    return rows.over_tokens(lambda i: -clipped_gain(rows.ratio(i), a[i], 0.2, 0.28))


def grpo(rows: FormulaRollouts) -> Tensor:
    """DeepSeekMath, equations 3 and 4."""
    a = rows.standardized()
    return rows.over_answers(
        lambda i: -clipped_gain(rows.ratio(i), a[i], 0.2, 0.2) + 0.04 * rows.k3(i)
    )


def dr_grpo(rows: FormulaRollouts) -> Tensor:
    """Dr. GRPO: no deviation, and each answer's sum of tokens over the longest there may be."""
    a = rows.centered()
    sums = [-clipped_gain(rows.ratio(i), a[i], 0.2, 0.2).sum() for i in rows.chosen]
    return torch.stack(sums).mean() / rows.limit


def dapo(rows: FormulaRollouts) -> Tensor:
    """DAPO: clip-higher over tokens, and the soft overlong punishment in the reward."""
    a = rows.standardized(rewards=rows.docked_for_length())
    return rows.over_tokens(lambda i: -clipped_gain(rows.ratio(i), a[i], 0.2, 0.28))


def gspo(rows: FormulaRollouts) -> Tensor:
    """Equations 5 and 7: one ratio for each answer, the geometric mean of its tokens'."""
    a = rows.standardized()

    def loss(i: int) -> Tensor:
        whole = (rows.log_p[i] - rows.log_engine[i]).mean().exp().reshape(1)
        return -clipped_gain(whole, a[i], 3e-4, 4e-4)

    return rows.over_answers(loss)


def gspo_token(rows: FormulaRollouts) -> Tensor:
    """GSPO-token: the answer's ratio, the token's gradient."""
    a = rows.standardized()

    def loss(i: int) -> Tensor:
        log_p = rows.log_p[i]
        whole = (log_p - rows.log_engine[i]).mean().exp().detach()
        return -clipped_gain(whole * (log_p - log_p.detach()).exp(), a[i], 3e-4, 4e-4)

    return rows.over_answers(loss)


def cispo(rows: FormulaRollouts) -> Tensor:
    """CISPO: the clipped ratio is a weight without a gradient."""
    a = rows.standardized(rewards=rows.docked_for_length())
    return rows.over_tokens(lambda i: -rows.ratio(i).clamp(max=1.2).detach() * a[i] * rows.log_p[i])


def lite_ppo(rows: FormulaRollouts) -> Tensor:
    """Lite PPO: the group's mean, the batch's deviation, over tokens."""
    spread = deviation(rows.reward) + 1e-6
    a = [each / spread for each in rows.centered()]
    return rows.over_tokens(lambda i: -clipped_gain(rows.ratio(i), a[i], 0.2, 0.2))


def maxrl(rows: FormulaRollouts) -> Tensor:
    """MaxRL: the reward less its mean, over the mean."""
    means = [mean([rows.reward[o] for o in rows.members(i)]) for i in range(len(rows.reward))]
    a = [
        each / (center + 1e-6) if center else 0.0
        for each, center in zip(rows.centered(), means, strict=True)
    ]
    return rows.over_tokens(lambda i: -clipped_gain(rows.ratio(i), a[i], 0.2, 0.2))


def sapo(rows: FormulaRollouts) -> Tensor:
    """SAPO: a sigmoid gate of the ratio, steeper for negative advantages."""
    a = rows.standardized()

    def loss(i: int) -> Tensor:
        tau = 1.0 if a[i] > 0 else 1.05
        return -4 / tau * torch.sigmoid(tau * (rows.ratio(i) - 1)) * a[i]

    return rows.over_answers(loss)


def gmpo(rows: FormulaRollouts) -> Tensor:
    """GMPO: the geometric mean of an answer's ratios, each held within e^0.4."""
    a = rows.standardized()

    def loss(i: int) -> Tensor:
        apart = rows.log_p[i] - rows.log_engine[i]
        held = apart.clamp(max=0.4) if a[i] > 0 else apart.clamp(min=-0.4)
        return -a[i] * held.mean().exp().reshape(1)

    return rows.over_answers(loss)


def kimi(rows: FormulaRollouts) -> Tensor:
    """Kimi k1.5: the whole answer's log-ratio, and its square as regularizer."""
    a = rows.centered()

    def loss(i: int) -> Tensor:
        apart = (rows.log_p[i] - rows.log_engine[i]).sum().reshape(1)
        return -a[i] * apart + 0.1 / 2 * apart**2

    return rows.over_answers(loss)


def rloo(rows: FormulaRollouts, beta: float = 0.03) -> Tensor:
    """RLOO: the reward less the divergence, less the others' mean; one action an answer."""
    apart = [float((e - r).sum()) for e, r in zip(rows.log_engine, rows.log_ref, strict=True)]
    paid = [reward - beta * each for reward, each in zip(rows.reward, apart, strict=True)]
    a = rows.against_others(paid)
    return torch.stack([-a[i] * rows.log_p[i].sum() for i in rows.chosen]).mean()


def reinforce(rows: FormulaRollouts) -> Tensor:
    """Williams: the reward times the log-probability of the answer."""
    return torch.stack([-rows.reward[i] * rows.log_p[i].sum() for i in rows.chosen]).mean()


def reinforce_plus_plus(rows: FormulaRollouts) -> Tensor:
    """REINFORCE++: returns with the divergence of the tokens to come, whitened."""
    per_token = []
    for i, reward in enumerate(rows.reward):
        apart = rows.log_engine[i] - rows.log_ref[i]
        ahead = apart.flip(0).cumsum(0).flip(0)
        per_token.append(reward - 0.01 * ahead)
    a = whitened(per_token, less=0)
    return rows.over_tokens(lambda i: -clipped_gain(rows.ratio(i), a[i], 0.2, 0.2))


def reinforce_plus_plus_baseline(rows: FormulaRollouts) -> Tensor:
    """REINFORCE++, with the group's mean as baseline, and k2 in the loss."""
    alike = [
        torch.full((rows.length(i),), each, dtype=torch.float64)
        for i, each in enumerate(rows.centered())
    ]
    a = whitened(alike, less=0)

    def loss(i: int) -> Tensor:
        k2 = (rows.log_p[i] - rows.log_ref[i]) ** 2 / 2
        return -clipped_gain(rows.ratio(i), a[i], 0.2, 0.2) + 0.001 * k2

    return rows.over_tokens(loss)


def nsr(rows: FormulaRollouts) -> Tensor:
    """Of the rows that are chosen only the wrong ones are left in the batch."""
    wrong = [i for i in rows.chosen if rows.reward[i] == 0.0]
    lost = [-clipped_gain(rows.ratio(i), -1.0, 0.2, 0.2) for i in wrong]
    return torch.cat(lost).mean()


def w_reinforce(rows: FormulaRollouts) -> Tensor:
    """Weighted-REINFORCE: right answers at 0.1, wrong ones at -1."""
    a = [0.1 if reward == 1.0 else -1.0 for reward in rows.reward]
    return rows.over_tokens(lambda i: -clipped_gain(rows.ratio(i), a[i], 0.2, 0.2))


def grpo_trl(rows: FormulaRollouts) -> Tensor:
    """GRPO as TRL has it."""
    a = rows.standardized(plus=1e-4)
    return rows.over_tokens(lambda i: -clipped_gain(rows.ratio(i, rows.log_old), a[i], 0.2, 0.2))


def cispo_trl(rows: FormulaRollouts) -> Tensor:
    """CISPO as TRL has it."""
    a = rows.standardized(plus=1e-4)
    return rows.over_tokens(
        lambda i: -rows.ratio(i, rows.log_old).clamp(max=5.0).detach() * a[i] * rows.log_p[i],
    )


def rloo_trl(rows: FormulaRollouts) -> Tensor:
    """RLOO as TRL has it: a clip of the whole answer's ratio."""
    apart = [float((e - r).sum()) for e, r in zip(rows.log_engine, rows.log_ref, strict=True)]
    paid = [reward - 0.05 * each for reward, each in zip(rows.reward, apart, strict=True)]
    a = rows.against_others(paid)

    def loss(i: int) -> Tensor:
        whole = (rows.log_p[i] - rows.log_old[i]).sum().exp().reshape(1)
        return -clipped_gain(whole, a[i], 0.2, 0.2)

    return rows.over_answers(loss)


def grpo_verl(rows: FormulaRollouts) -> Tensor:
    """GRPO as verl has it: the dual clip at 3, k3 held at 10."""
    a = rows.standardized(plus=1e-6)

    def loss(i: int) -> Tensor:
        plain = -clipped_gain(rows.ratio(i, rows.log_old), a[i], 0.2, 0.2)
        held = plain.clamp(max=-3 * a[i]) if a[i] < 0 else plain
        return held + 0.001 * rows.k3(i).clamp(max=10.0)

    return rows.over_tokens(loss)


def _open_instruct(rows: FormulaRollouts, gain: Callable[[Tensor, float, int], Tensor]) -> Tensor:
    a = rows.centered()

    def loss(i: int) -> Tensor:
        off = (rows.log_old[i] - rows.log_engine[i]).exp().clamp(max=2.0)
        return -off * gain(rows.ratio(i, rows.log_old), a[i], i) + 0.05 * rows.k3(i)

    return rows.over_tokens(loss)


def grpo_open_instruct(rows: FormulaRollouts) -> Tensor:
    """GRPO as Open Instruct has it."""
    return _open_instruct(rows, lambda now, a, i: clipped_gain(now, a, 0.2, 0.272))


def cispo_open_instruct(rows: FormulaRollouts) -> Tensor:
    """CISPO as Open Instruct has it."""
    return _open_instruct(rows, lambda now, a, i: now.clamp(max=1.272).detach() * a * rows.log_p[i])


def prorl(rows: FormulaRollouts) -> Tensor:
    """ProRL: GRPO over tokens with clip-higher at 0.4, and a divergence."""
    a = rows.standardized()
    return rows.over_tokens(
        lambda i: -clipped_gain(rows.ratio(i), a[i], 0.2, 0.4) + 0.001 * rows.k3(i)
    )


def nft(rows: FormulaRollouts) -> Tensor:
    """NFT: likelihood of right tokens, and of wrong ones by the policy of right ones they imply."""
    total = torch.zeros((), dtype=torch.float64)
    for i in rows.chosen:
        q = mean([rows.reward[o] for o in rows.members(i)])
        if q in (0.0, 1.0):
            continue
        now = rows.ratio(i)
        implied = (1 - q * now) / (1 - q)
        held = implied.clamp(min=1.0).detach() + implied - implied.detach()
        lost = -now.log() if rows.reward[i] > 0 else -held.log()
        total = total + (1 - q) * lost.sum()
    return total / sum(rows.length(i) for i in rows.chosen)


def pacs(rows: FormulaRollouts) -> Tensor:
    """PACS: cross-entropy of the log-ratio less that of the others, classes weighed alike."""
    score = {i: (rows.log_p[i] - rows.log_engine[i]).sum() for i in rows.chosen}
    lost = []
    for i in rows.chosen:
        group = rows.members(i)
        others = torch.stack([score[o] for o in group if o != i])
        logit = score[i] - others.mean()
        right = rows.reward[i] > 0
        alike = [o for o in group if (rows.reward[o] > 0) == right]
        weight = 1.0 if len(alike) == len(group) else len(group) / (2 * len(alike))
        sign = 1.0 if right else -1.0
        lost.append(weight * torch.log1p((-sign * logit).exp()))
    return torch.stack(lost).mean()


def copg(rows: FormulaRollouts) -> Tensor:
    """CoPG: the squared difference of regularized rewards, over all pairs of a group."""
    beta = 0.1
    paid = {i: rows.reward[i] - beta * (rows.log_p[i] - rows.log_ref[i]).sum() for i in rows.chosen}
    both = [(i, o) for i in rows.chosen for o in rows.members(i) if o != i]
    return torch.stack([(paid[i] - paid[o]) ** 2 / (2 * beta) for i, o in both]).mean()


def copg_offline(pairs: FormulaPairs) -> Tensor:
    """CoPG of a table: the squared difference of the regularized scores of a pair's two sides."""
    gap = torch.tensor(pairs.gap, dtype=pairs.margins().dtype)
    return ((gap - 0.1 * pairs.margins()) ** 2 / (2 * 0.1)).mean()


def rover(rows: FormulaRollouts) -> Tensor:
    """ROVER: the Bellman equation of the uniform policy's value, on log-ratios."""
    a = rows.centered()

    def loss(i: int) -> Tensor:
        moved = rows.vocabulary[i] - rows.vocabulary_old[i]
        ahead = torch.cat([moved[1:], torch.zeros(1, dtype=moved.dtype)])
        return (rows.log_p[i] - rows.log_engine[i] - (a[i] + ahead)) ** 2

    return rows.over_tokens(loss)


def tw_grpo(rows: FormulaRollouts) -> Tensor:
    """TW-GRPO: from 1 to 1.7 by the divergence within the group."""
    a = rows.standardized(plus=1e-4)

    def loss(i: int) -> Tensor:
        more = 1 + 0.7 * divergence_by_place(rows, i)
        return -more * clipped_gain(rows.ratio(i), a[i], 0.2, 0.2)

    return rows.over_tokens(loss)


def contrastive(pairs: FormulaPairs) -> Tensor:
    """CPL, whose cpl.py has: logit = adv2 - bias * adv1, of adv = alpha * the segment's log p."""
    good, bad = 0.1 * pairs.sums(pairs.chosen), 0.1 * pairs.sums(pairs.rejected)
    return -logsigmoid(good - 0.5 * bad).mean()


def one_shot_rlvr(rows: FormulaRollouts) -> Tensor:
    """GRPO as verl has it, and the entropy of each drawn token's distribution as a bonus."""
    return grpo_verl(rows) - 0.001 * rows.over_tokens(rows.entropy)


def hicra(rows: FormulaRollouts) -> Tensor:
    """GRPO with A + 0.2 |A| inside of the fifth of grams that most right answers have."""

    def grams(i: int) -> set[tuple[int, tuple[int, ...]]]:
        ids = rows.drawn(i)
        return {(b, tuple(ids[b : b + n])) for n in (3, 4, 5) for b in range(len(ids) - n + 1)}

    right = [{gram for _, gram in grams(i)} for i, r in enumerate(rows.reward) if r > 0]
    counts = {gram: sum(gram in each for each in right) for gram in set().union(*right)}
    ranked = sorted(counts.values(), reverse=True) or [2]
    least, plain = max(2, ranked[max(1, round(0.2 * len(ranked))) - 1]), rows.standardized()

    def loss(i: int) -> Tensor:
        a = torch.full((rows.length(i),), plain[i], dtype=torch.float64)
        for b, gram in grams(i):
            if counts.get(gram, 0) >= least:
                a[b : b + len(gram)] = plain[i] + 0.2 * abs(plain[i])
        return 0.04 * rows.k3(i) - clipped_gain(rows.ratio(i), a, 0.2, 0.2)

    return rows.over_answers(loss)


def bgpo(rows: FormulaRollouts) -> Tensor:
    """BGPO: each draw of an answer by itself, the tangent above 0 and Jensen's inequality below."""
    a = rows.standardized_by_answer()
    d = {i: (rows.log_p[i] - rows.log_engine[i]).mean() for i in rows.chosen}
    return torch.stack([-a[i] * (1 + d[i] if a[i] > 0 else d[i].exp()) for i in d]).mean()
