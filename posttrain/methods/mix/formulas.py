"""The losses of methods in this folder by their papers, apart from the product's own."""

from collections.abc import Callable

import torch
from torch import Tensor

from posttrain.methods.formula import FormulaRollouts, clipped_gain, mean
from posttrain.methods.pg.formulas import dr_grpo


def relift(rows: FormulaRollouts) -> Tensor:
    """ReLIFT's RL is Dr. GRPO's; its fine-tuning is another update."""
    return dr_grpo(rows)


def loss_balance(rows: FormulaRollouts) -> Tensor:
    """GRPO without a divergence; what is rehearsed is looked at elsewhere."""
    a = rows.standardized()
    return rows.over_answers(lambda i: -clipped_gain(rows.ratio(i), a[i], 0.2, 0.2))


def kdrl(rows: FormulaRollouts) -> Tensor:
    """KDRL, equation 8: GRPO over tokens, and k2 of the reverse KL to the teacher, annealed."""
    # Steps are stored from 1 on, and the weight falls from the first one on.
    a, made = rows.standardized(), int(rows.stored[0]["step"]) - 1
    weight = 5e-3 + (1e-3 - 5e-3) * min(made, 80) / 80

    def loss(i: int) -> Tensor:
        apart = rows.log_p[i] - rows.log_ref[i]
        return -clipped_gain(rows.ratio(i), a[i], 0.2, 0.2) + weight * apart.square() / 2

    return rows.over_tokens(loss)


def on_policy_distillation(rows: FormulaRollouts) -> Tensor:
    """On-policy distillation: by the ratio to what sampled, log-ratios to the teacher as gains."""
    return rows.over_tokens(lambda i: -rows.ratio(i) * (rows.log_ref[i] - rows.log_engine[i]))


def gkd(rows: FormulaRollouts) -> Tensor:
    """GKD, equation 1 with beta 1/2, over all tokens; what was drawn has no gradient of its own."""

    def loss(i: int) -> Tensor:
        policy, teacher = rows.log_all[i], rows.log_all_ref[i]
        middle = torch.log((teacher.exp() + policy.exp()) / 2)
        sides = [each.exp() * (each - middle) for each in (teacher, policy)]
        return torch.stack(sides).sum(-1).mean(0) + 0.0 * rows.log_p[i]

    return rows.over_tokens(loss)


def rl_plus(rows: FormulaRollouts) -> Tensor:
    """RL-PLUS: against the policy's own rewards, and demonstrations by multiple importance."""
    return _beside_own(rows, lambda p, old, _: 2 * p / (old + 0.5 * (old + 1)))


def known_authors(rows: FormulaRollouts) -> Tensor:
    """RL-PLUS, equations 4 to 7: the same where the author's probabilities are known."""
    return _beside_own(rows, lambda p, old, author: 2 * p / (old + author))


def _beside_own(
    rows: FormulaRollouts, weight: Callable[[Tensor, Tensor, Tensor], Tensor]
) -> Tensor:
    """Weigh each token that another wrote; of what is stored its author's log-probability is."""
    foreign = [row["origin"] != "policy" for row in rows.stored]

    def own(i: int) -> list[float]:
        return [rows.reward[other] for other in rows.members(i) if not foreign[other]]

    def loss(i: int) -> Tensor:
        a = rows.reward[i] - mean(own(i))
        if not foreign[i]:
            return -clipped_gain(rows.ratio(i), a, 0.2, 0.2)
        p, old, author = (each[i].exp() for each in (rows.log_p, rows.log_old, rows.log_engine))
        return -a * (1 - p.detach()) ** 0.5 * weight(p, old, author)

    return torch.stack([loss(i).sum() for i in rows.chosen]).mean() / rows.limit


def ampo(rows: FormulaRollouts) -> Tensor:
    """AMPO: the dual clip at 10, and traces by p / (p + 0.1)."""
    a = rows.centered()

    def loss(i: int) -> Tensor:
        if rows.stored[i]["origin"] != "policy":
            p = rows.log_p[i].exp()
            return -a[i] * p / (p + 0.1)
        plain = -clipped_gain(rows.ratio(i), a[i], 0.2, 0.2)
        return plain.clamp(max=-10 * a[i]) if a[i] < 0 else plain

    return torch.stack([loss(i).sum() for i in rows.chosen]).mean() / rows.limit


def critique_grpo(rows: FormulaRollouts) -> Tensor:
    """Critique-GRPO: Dr. GRPO, and refinements by p / (p + 0.1)."""
    a = rows.centered()

    def loss(i: int) -> Tensor:
        if rows.stored[i]["origin"] != "policy":
            p = rows.log_p[i].exp()
            return -a[i] * p / (p + 0.1)
        return -clipped_gain(rows.ratio(i), a[i], 0.2, 0.2)

    return torch.stack([loss(i).sum() for i in rows.chosen]).mean() / rows.limit


def remix(rows: FormulaRollouts) -> Tensor:
    """ReMix in its first step: GRPO, and k3 from the base and from the policy before the step."""
    a = rows.standardized()

    def loss(i: int) -> Tensor:
        behind = rows.log_old[i] - rows.log_p[i]
        held = rows.k3(i) + behind.exp() - 1 - behind
        return -clipped_gain(rows.ratio(i), a[i], 0.2, 0.2) + 0.02 * held

    return rows.over_answers(loss)


def sapo_swarm(rows: FormulaRollouts) -> Tensor:
    """GRPO without a divergence, on a policy's own groups and on those that it read."""
    a = rows.standardized()
    return rows.over_answers(lambda i: -clipped_gain(rows.ratio(i), a[i], 0.2, 0.28))
