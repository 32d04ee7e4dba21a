"""Runs of a tracker, drawn again beside one's own."""

from statistics import fmean
from typing import Literal

from pydantic import Field

from posttrain.learning.rollouts.diagnostics.base import (
    Diagnosis,
    Diagnostic,
    DrawnLine,
    Seen,
    values_by_step,
)
from posttrain.stage.errors import UserError, nearest


class TrackedCurves(Diagnostic):
    """Draws a curve of `tasks.import_curves` with its interval, and one's own beside it.

    Over the last `window` steps that both have, `published` is the interquartile mean of the
    tracked runs, `low` and `high` the ends of its interval, `own` one's own value, `off` own less
    published, and `inside` 1 where the own value lies from low to high, else 0.
    """

    SOURCE = (
        "Huang et al., 'Open RL Benchmark', arXiv:2402.03046: tracked runs are fetched and drawn"
        " with an interval; interquartile means by Agarwal et al., arXiv:2108.13264"
    )
    NEEDS = frozenset({"curves"})

    kind: Literal["tracked_curves"] = "tracked_curves"
    published: str
    """Name under which the imported curve is connected; all others are one's own."""
    metric: str = "rl/reward"
    """Which metric; it has one name in all curves."""
    window: int = Field(default=1, ge=1)
    """Steps at the end that a curve is averaged over."""

    def diagnose(self, seen: Seen) -> Diagnosis:
        """Hold every own curve against the imported one; see `Diagnostic.diagnose`."""
        if self.published not in seen.curves:
            hint = nearest(self.published, seen.curves) or ""
            raise UserError(f"diagnose: no curve is connected as '{self.published}'{hint}")
        there = seen.curves[self.published]
        mean, low, high = (
            values_by_step(there, f"{self.metric}{end}") for end in ("", "/low", "/high")
        )
        if not (mean and mean.keys() == low.keys() == high.keys()):
            raise UserError(
                f"diagnose: the curve '{self.published}' has no {self.metric} with an interval;"
                " connect the curve of an import_curves stage that has the metric by that name"
            )
        steps = sorted(mean)
        lines = [
            DrawnLine(
                f"{self.published} (published)",
                steps,
                *([each[step] for step in steps] for each in (mean, low, high)),
            )
        ]
        figures = {}
        for name, path in seen.curves.items():
            own = values_by_step(path, self.metric)
            if name == self.published or not own:
                continue
            lines.append(DrawnLine(name, sorted(own), [own[step] for step in sorted(own)]))
            last = sorted(own.keys() & mean.keys())[-self.window :]
            if not last:
                raise UserError(
                    f"diagnose: the curves '{name}' and '{self.published}' have no step in common"
                )
            found = {
                each: fmean(points[step] for step in last)
                for each, points in {
                    "published": mean,
                    "low": low,
                    "high": high,
                    "own": own,
                }.items()
            }
            inside = found["low"] <= found["own"] <= found["high"]
            figures[name] = found | {
                "off": found["own"] - found["published"],
                "inside": float(inside),
                "at": float(last[-1]),
            }
        if not figures:
            raise UserError(f"diagnose: no own curve that is connected has {self.metric}")
        return Diagnosis(figures, lines, ("step", self.metric))
