"""What a run changed over the one before: as whoever compared them hands it to the page."""

from collections.abc import Sequence
from dataclasses import dataclass

from posttrain.stage.formatting import number


@dataclass(frozen=True)
class MetricChange:
    """A figure in both runs; with the interval of the difference where problems can be paired."""

    stage: str
    name: str
    before: float | None
    after: float | None
    low: float | None = None
    high: float | None = None
    paired: int | None = None
    """Problems over which the interval is; None where nothing can be paired."""

    @property
    def difference(self) -> float | None:
        """After minus before; None where a run lacks the figure."""
        if self.before is None or self.after is None:
            return None
        return self.after - self.before

    @property
    def direction(self) -> str:
        """`up` or `down` where the paired interval leaves 0 out, else nothing."""
        if self.low is None or self.high is None:
            return ""
        return "up" if self.low > 0 else "down" if self.high < 0 else ""

    @property
    def moved(self) -> str:
        """The difference with its interval, in a line."""
        if self.difference is None:
            return "only in the run before" if self.after is None else "new"
        said = f"{'+' if self.difference >= 0 else '-'}{number(abs(self.difference))}"
        if self.low is None or self.high is None:
            return said
        return f"{said} [{self.low:+.3f}, {self.high:+.3f}], paired over {self.paired:,} problems"


@dataclass(frozen=True)
class RunChange:
    """Two states of a recipe, compared."""

    before: str
    """What the earlier one is, such as `run 20261124-100000-1a2b3c of 2026-11-24 10:00 UTC`."""
    after: str
    causes: Sequence[tuple[str, str]]
    """By stage the first thing that differs."""
    metrics: Sequence[MetricChange]
    """Figures that differ, those paired by problem first."""
    equal: int
    """How many stages are the same in both."""
    remarks: Sequence[str] = ()
    """What could not be compared, and why."""
