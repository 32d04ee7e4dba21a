"""What a proxy is paid and what it stands for, over the divergence from the start."""

import math
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from posttrain.learning.rollouts.diagnostics.base import Diagnosis, Diagnostic, DrawnLine, Seen
from posttrain.stage.errors import UserError, nearest

if TYPE_CHECKING:
    from pathlib import Path


class GoldCurve(Diagnostic):
    """Reads proxy and gold off each step's own rollouts, against the divergence at that step.

    The divergence of an answer is `divergence`, in nats per token, times `rl/length`; means over a
    tenth of the steps are compared, as single steps are noisy. `proxy_gain` is the last proxy less
    the first; `gold_gain` the same of the gold, `gold_peak` its highest, `gold_lost` how far the
    last is below that, `peak_at` the root of the divergence where it is highest; `mismatch` is
    `proxy_gain` less `gold_gain`. `agreement` is the rank correlation of proxy and gold over the
    steps up to the peak of the gold, `agreement_after` over those behind it.
    """

    SOURCE = (
        "Gao, Schulman, Hilton, 'Scaling Laws for Reward Model Overoptimization',"
        " arXiv:2210.10760, figure 1"
    )
    NEEDS = frozenset({"curves"})

    kind: Literal["gold_curve"] = "gold_curve"
    proxy: str = "rl/reward/proxy"
    """Metric that training maximizes."""
    gold: str = "rl/reward/gold"
    """Metric that it stands for."""
    divergence: str = "rl/kl"
    """Metric of the divergence from the reference, in nats per token."""
    window: float = Field(default=0.1, gt=0.0, le=0.5)
    """Share of the steps that a mean is taken over."""

    def diagnose(self, seen: Seen) -> Diagnosis:
        """Read every run that has the three metrics; see `Diagnostic.diagnose`."""
        figures, lines = {}, []
        for name, path in seen.curves.items():
            columns = self._columns(path, name)
            if columns is None:
                continue
            figures[name], drawn = self._read(name, *columns)
            lines += drawn
        if not figures:
            raise UserError(
                f"diagnose: no curve has {self.proxy}, {self.gold} and {self.divergence}; name the"
                " components of the reward, and give the algorithm a regularizer kl"
            )
        return Diagnosis(figures, lines, ("root of the divergence, in nats", "mean score"))

    def _columns(self, path: "Path", name: str) -> tuple[list[float], ...] | None:
        """Proxy, gold and root of the divergence, step by step; None of a run without them."""
        import polars as pl

        from posttrain.data.schemas import CURVE
        from posttrain.data.tables import read_table

        curve = read_table(path, CURVE).sort("step")
        wanted = (self.proxy, self.gold, self.divergence, "rl/length")
        found = {
            m: dict(curve.filter(pl.col("metric") == m)["step", "value"].rows()) for m in wanted
        }
        if not found[self.proxy] and not found[self.gold]:
            return None
        missing = next((metric for metric in wanted if not found[metric]), None)
        if missing is not None:
            hint = nearest(missing, curve["metric"].unique().to_list())
            raise UserError(f"diagnose: the curve of {name} has no {missing}{hint}")
        # A step in which no answer came to its end has no length.
        steps = sorted(set.intersection(*(set(each) for each in found.values())))
        proxy, gold, per_token, lengths = ([found[m][step] for step in steps] for m in wanted)
        roots = [
            math.sqrt(max(0.0, kl * length)) for kl, length in zip(per_token, lengths, strict=True)
        ]
        return proxy, gold, roots

    def _read(
        self, name: str, proxy: list[float], gold: list[float], root: list[float]
    ) -> tuple[dict[str, float], list[DrawnLine]]:
        width = max(1, round(self.window * len(gold)))
        proxy, gold, root = (_smooth(each, width) for each in (proxy, gold, root))
        peak = max(range(len(gold)), key=lambda step: gold[step])
        found = {
            "proxy_gain": proxy[-1] - proxy[0],
            "gold_gain": gold[-1] - gold[0],
            "gold_peak": gold[peak],
            "gold_lost": gold[peak] - gold[-1],
            "peak_at": root[peak],
            "divergence": root[-1],
            "mismatch": (proxy[-1] - proxy[0]) - (gold[-1] - gold[0]),
        }
        for which, steps in (
            ("agreement", slice(peak + 1)),
            ("agreement_after", slice(peak, None)),
        ):
            told = _correlation(proxy[steps], gold[steps])
            found |= {} if told is None else {which: told}
        order = sorted(range(len(root)), key=lambda step: root[step])
        x = [root[step] for step in order]
        return found, [
            DrawnLine(f"{name}: proxy", x, [proxy[step] for step in order]),
            DrawnLine(f"{name}: gold", x, [gold[step] for step in order]),
        ]


def _smooth(values: list[float], width: int) -> list[float]:
    """Means over so many steps; fewer of them than there are steps, by width less one."""
    return [sum(values[at : at + width]) / width for at in range(len(values) - width + 1)]


def _correlation(one: list[float], other: list[float]) -> float | None:
    import torch

    from posttrain.learning.maths.ranks import rank_correlation

    return rank_correlation(torch.tensor(one), torch.tensor(other)) if len(one) > 2 else None
