"""The losses of methods in this folder by their papers, apart from the product's own."""

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from posttrain.methods.formula import FormulaPairs, FormulaRollouts


def dpo(pairs: FormulaPairs, beta: float = 0.1) -> Tensor:
    """DPO: the logistic loss of the margin."""
    return -logsigmoid(beta * pairs.margins()).mean()


def conservative(pairs: FormulaPairs) -> Tensor:
    """Conservative DPO: labels that are wrong one time in ten."""
    m = 0.1 * pairs.margins()
    return (-0.9 * logsigmoid(m) - 0.1 * logsigmoid(-m)).mean()


def robust(pairs: FormulaPairs) -> Tensor:
    """Robust DPO: the same labels, with an estimate that is unbiased."""
    m = 0.1 * pairs.margins()
    return ((-0.9 * logsigmoid(m) + 0.1 * logsigmoid(-m)) / (1 - 2 * 0.1)).mean()


def ipo(pairs: FormulaPairs) -> Tensor:
    """IPO: the margin's square distance from 1/2β."""
    return ((pairs.margins() - 1 / (2 * 0.1)) ** 2).mean()


def ipo_per_token(pairs: FormulaPairs) -> Tensor:
    """IPO with the mean log-ratio of a completion's tokens."""
    return ((pairs.margins(torch.mean) - 1 / (2 * 0.1)) ** 2).mean()


def hinge(pairs: FormulaPairs) -> Tensor:
    """SLiC's hinge on the margin of DPO."""
    return (1 - 0.1 * pairs.margins()).clamp(min=0).mean()


def kto(pairs: FormulaPairs) -> Tensor:
    """Equations 7 and 8, each pair as a desirable and an undesirable completion."""
    away = pairs.sums(pairs.extra) - pairs.sums(pairs.ref_extra)
    point = away.mean().clamp(min=0).detach()
    good = pairs.sums(pairs.chosen) - pairs.sums(pairs.ref_chosen)
    bad = pairs.sums(pairs.rejected) - pairs.sums(pairs.ref_rejected)
    lost = [1 - torch.sigmoid(0.1 * (good - point)), 1 - torch.sigmoid(0.1 * (point - bad))]
    return torch.cat(lost).mean()


def orpo(pairs: FormulaPairs) -> Tensor:
    """ORPO: likelihood of the chosen, and the log-odds against the rejected."""
    good, bad = pairs.means(pairs.chosen), pairs.means(pairs.rejected)
    odds = [each - torch.log(1 - each.exp()) for each in (good, bad)]
    return (-good - 0.1 * logsigmoid(odds[0] - odds[1])).mean()


def simpo(pairs: FormulaPairs) -> Tensor:
    """SimPO: mean log-probabilities without a reference, and a margin that is asked for."""
    gap = pairs.means(pairs.chosen) - pairs.means(pairs.rejected)
    return -logsigmoid(2.0 * gap - 0.5).mean()


def rpo(pairs: FormulaPairs) -> Tensor:
    """RPO, whose rpo_trainer.py has: losses -= policy_chosen_logps * beta * eta."""
    return dpo(pairs, beta=0.05) - 0.05 * 0.005 * pairs.sums(pairs.chosen).mean()


def iterative_rpo(pairs: FormulaPairs) -> Tensor:
    """Iterative RPO: the chosen's likelihood by tokens beside DPO."""
    return dpo(pairs) - pairs.means(pairs.chosen).mean()


def xpo(pairs: FormulaPairs) -> Tensor:
    """Algorithm 1, line 7: the bonus is on the samples of the reference."""
    return dpo(pairs) + 1e-3 * pairs.sums(pairs.extra).mean()


def ld_dpo(pairs: FormulaPairs) -> Tensor:
    """LD-DPO: tokens past the shorter completion's length count half."""
    margins = []
    sides = (pairs.chosen, pairs.rejected, pairs.ref_chosen, pairs.ref_rejected)
    for good, bad, ref_good, ref_bad in zip(*sides, strict=True):
        shared = min(len(good), len(bad))

        def weighed(each: Tensor, shared: int = shared) -> Tensor:
            return each[:shared].sum() + 0.5 * each[shared:].sum()

        margins.append(weighed(good) - weighed(ref_good) - weighed(bad) + weighed(ref_bad))
    return -logsigmoid(0.1 * torch.stack(margins)).mean()


def hypo(pairs: FormulaPairs) -> Tensor:
    """HyPO, algorithm 1: DPO on pairs, and log π times its log-ratio, held, on own samples."""
    own = pairs.sums(pairs.extra)
    ratio = (own - pairs.sums(pairs.ref_extra)).detach()
    return dpo(pairs) + 0.1 * (ratio * own).mean()


def inpo(pairs: FormulaPairs) -> Tensor:
    """INPO of its first round, in which both references are the first policy: η is 1."""
    return pairs.expected(lambda m: (m - 1 / (2 * 1.0)) ** 2)


def dno(pairs: FormulaPairs) -> Tensor:
    """DNO, algorithm 1, line 5, of its first round: η is 1."""
    return pairs.expected(lambda m: -logsigmoid(m))


def dno_prct(pairs: FormulaPairs) -> Tensor:
    """DNO-Prct, equation 13, of its first round: η is 1, and labels are sure."""
    return -logsigmoid(pairs.margins()).mean()


def lspo(pairs: FormulaPairs) -> Tensor:
    """LSPO of its first round: the cross-entropy of what the latent game says, at β = 1."""
    return pairs.expected(lambda m: -logsigmoid(m))


def nash_md(pairs: FormulaPairs) -> Tensor:
    """Nash-MD of its first round, in which the mixture is the first policy: η is 1."""
    return pairs.expected(lambda m: -logsigmoid(m / 1.0))


def spo(rows: FormulaRollouts) -> Tensor:
    """SPO: REINFORCE on how often an answer is preferred to the others of its group."""
    a = rows.centered()
    return torch.stack([-a[i] * rows.log_p[i].sum() for i in rows.chosen]).mean()


def step_apo(pairs: FormulaPairs) -> Tensor:
    """Step-APO, whose trainer.py takes the logistic loss of beta * logits less the gap of q."""
    asked = torch.tensor(pairs.gap, dtype=pairs.margins().dtype)
    return -logsigmoid(0.3 * pairs.margins() - 1.0 * asked).mean()


def step_q(pairs: FormulaPairs) -> Tensor:
    """Step-level DPO, as of whole answers: the margin is of what bears loss, the step."""
    return dpo(pairs)


def ddro(pairs: FormulaPairs) -> Tensor:
    """DDRO: DPO on identifiers, as train_dpo_model.py has it."""
    return dpo(pairs, beta=0.49)
