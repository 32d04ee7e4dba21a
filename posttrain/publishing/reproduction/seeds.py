"""L3: run with other seeds, and ask whether the recorded figure is one of theirs."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean as mean_of
from statistics import stdev

from posttrain.pipeline.execution.session import Session
from posttrain.provenance.ledger import StageRun
from posttrain.publishing.reproduction.project import Mirror, Restorer
from posttrain.publishing.reproduction.subject import Subject
from posttrain.stage.errors import UserError, nearest

CONFIDENCE = 0.95
_HEADLINE = "/pass_at_1"


@dataclass(frozen=True)
class SeedSpread:
    """The recorded value of a metric among those of further seeds, and what follows from it.

    `low` to `high` is where one more seed's value lies, `mean_low` to `mean_high` where the mean
    over seeds does; `needed` is how many seeds tell the mean to within `within`.
    """

    metric: str
    recorded: float
    values: Mapping[int, float]
    mean: float
    low: float
    high: float
    mean_low: float
    mean_high: float
    within: float
    needed: int

    @property
    def inside(self) -> bool:
        """Return whether the recorded value is one that a further seed could have given."""
        slack = 1e-12 * max(1.0, abs(self.recorded))
        return self.low - slack <= self.recorded <= self.high + slack

    @property
    def enough(self) -> bool:
        """Return whether the seeds tell the mean closely enough for a verdict."""
        return (self.mean_high - self.mean_low) / 2 <= self.within

    @property
    def holds(self) -> bool:
        """The decision rule: enough seeds, and the recorded value inside the interval."""
        return self.enough and self.inside

    @property
    def rule(self) -> str:
        """The decision rule in words."""
        return (
            f"{self.metric} as recorded lies in the {CONFIDENCE:.0%} t prediction interval of "
            f"{len(self.values)} other seeds, and those tell the mean to within {self.within:g}"
        )


@dataclass(frozen=True)
class SeedQuestion:
    """The metric to compare (pass@1 of the last policy where None), and how closely it is asked."""

    metric: str | None = None
    num_seeds: int = 3
    within: float = 0.05


def run_with_seeds(
    session: Session,
    subject: Subject,
    folder: Path,
    asked: SeedQuestion,
    report: Callable[[str], None],
) -> SeedSpread:
    """Run recipe or stage with the seeds after the recorded one."""
    recorded = _metrics(subject.records)
    metric = headline(session, subject, asked.metric)
    mirror = Mirror(session, folder / "project")
    options: Sequence[str] = ()
    if subject.alone:
        (record,) = subject.records.values()
        mirror.place_inputs(Restorer(session.workspace.root, folder), record)
        options = ("--only", record.stage)
    values: dict[int, float] = {}
    for place in range(1, asked.num_seeds + 1):
        seed = session.recipe.run.seed + place
        report(f"seed {seed} ({place} of {asked.num_seeds})")
        found = _metrics(mirror.run("--set", f"run.seed={seed}", *options))
        if metric not in found or not math.isfinite(found[metric]):
            why = "has no finite value of it" if found else "failed: its messages are above"
            raise UserError(f"seed {seed} {why}; without it there is no verdict on {metric}")
        values[seed] = found[metric]
    return spread_of(metric, recorded[metric], values, asked.within)


def spread_of(
    metric: str, recorded: float, values: Mapping[int, float], within: float
) -> SeedSpread:
    """Compute the intervals that a metric's values give, and how many values would be enough.

    With t of n - 1 degrees of freedom, one more value of a normal distribution lies in
    ``mean +- t s sqrt(1 + 1/n)`` (Geisser 1993, "Predictive Inference"), its mean in
    ``mean +- t s / sqrt(n)`` (Student 1908). Equal values give intervals of width 0.

    Args:
        metric: Name of the metric.
        recorded: Its value in the run that is verified.
        values: Its value by seed, at least two.
        within: Half the width at which the interval of the mean is narrow enough; above 0.

    """
    if len(values) < 2:
        raise ValueError(f"a spread needs at least two values, not {len(values)}")
    deviation, mean = stdev(values.values()), mean_of(values.values())
    reach = _quantile(len(values)) * deviation
    one, around = reach * math.sqrt(1 + 1 / len(values)), reach / math.sqrt(len(values))
    return SeedSpread(
        metric,
        recorded,
        dict(values),
        mean=mean,
        low=mean - one,
        high=mean + one,
        mean_low=mean - around,
        mean_high=mean + around,
        within=within,
        needed=seeds_needed(deviation, within),
    )


def seeds_needed(deviation: float, within: float) -> int:
    """Return the least n for which ``t s / sqrt(n)`` is at most `within`; at least 2.

    Args:
        deviation: The standard deviation s.
        within: Half the width of the mean's interval; above 0.

    Returns:
        Exact up to a hundred, and at most one in a hundred too many beyond.

    """
    if within <= 0:
        raise ValueError(f"the reach must be above 0, not {within}")
    num_values = 2
    while _quantile(num_values) * deviation > within * math.sqrt(num_values):
        # Beyond some hundred values t hardly changes: go there in strides.
        num_values += 1 + num_values // 100
    return num_values


def _quantile(num_values: int) -> float:
    """Student's t that holds `CONFIDENCE` of the distribution between -t and t."""
    from scipy.stats import t as student

    return float(student.ppf((1 + CONFIDENCE) / 2, num_values - 1))


def _metrics(runs: Mapping[str, StageRun]) -> dict[str, float]:
    """Every metric of stages by its name."""
    return {name: value for run in runs.values() for name, value in run.metrics.items()}


def headline(session: Session, subject: Subject, asked: str | None) -> str:
    """The metric to compare: the one asked for, else pass@1 of the policy that comes last."""
    known = _metrics(subject.records)
    if asked is not None:
        if asked not in known:
            raise UserError(f"{subject.name} has no metric '{asked}'{nearest(asked, known)}")
        return asked
    order = session.dag.order()
    candidates = [name for name in known if name.endswith(_HEADLINE)]
    if not candidates:
        shown = ", ".join(sorted(known)[:8]) or "none at all"
        raise UserError(f"{subject.name} has no pass@1: name a metric with --metric ({shown})")

    def place(name: str) -> int:
        policy = name.removesuffix(_HEADLINE).rpartition("/")[2]
        return order.index(policy) if policy in order else -1

    return max(candidates, key=lambda name: (place(name), name))
