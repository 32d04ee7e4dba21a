"""Evaluation reports: what they say of each policy, in one sentence, and their charts.

Reads the JSON that an evaluation writes by its documented keys, without importing the task.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter
from pydantic.dataclasses import dataclass

from posttrain.stage.formatting import counted
from posttrain.stage.spec import ArtifactKind
from posttrain.views.charts import SHARE, Chart, ChartRow, Series, histogram, line_chart, row_chart
from posttrain.views.charts.chart import NUM_COLORS
from posttrain.views.report.facts import StageFacts, found
from posttrain.views.report.intervals import wilson

_MOST_BINS = 16


@dataclass(frozen=True)
class Share:
    """A rate and its 95% interval, or only the rate; of `k` tries."""

    value: float
    low: float | None = None
    high: float | None = None
    k: int = 1

    @property
    def direction(self) -> str:
        """For a difference: "up" or "down" where the interval leaves 0 out, else nothing."""
        low = self.value if self.low is None else self.low
        high = self.value if self.high is None else self.high
        return "up" if low > 0 else "down" if high < 0 else ""

    @property
    def bounded(self) -> bool:
        """Whether it has an interval; the mean of a single problem has none."""
        return (
            self.low is not None
            and self.high is not None
            and math.isfinite(self.low)
            and math.isfinite(self.high)
        )

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"{self.value:.1%}"
        return f"{self.value:.1%} [{100 * self.low:.1f}, {100 * self.high:.1f}]"


@dataclass(frozen=True)
class SliceShare:
    """What a policy solves of one source or difficulty."""

    name: str
    pass_at_1: Share
    num_problems: int | None = None


@dataclass(frozen=True)
class Gain:
    """Points over the parent, paired by problem."""

    parent: str
    difference: Share
    newly_solved: tuple[str, ...] = ()
    newly_lost: tuple[str, ...] = ()


@dataclass(frozen=True)
class EpisodeMeans:
    """What the episodes of a policy were: means, and the share of each way in which they ended."""

    turns: Share
    tokens_drawn: Share
    tokens_read: Share
    facts: dict[str, Share]
    ends: dict[str, Share]
    score: Share | None = None

    def columns(self) -> dict[str, Share]:
        """Return the means that are no shares, by what stands above them."""
        score = {} if self.score is None else {"mean score": self.score}
        counts = {name.replace("_", " "): mean for name, mean in self.facts.items()}
        tokens = {"tokens drawn": self.tokens_drawn, "tokens read": self.tokens_read}
        return {**score, "turns": self.turns, **counts, **tokens}

    def __str__(self) -> str:
        """Say it in a line."""
        means = [f"{name} {mean.value:.3g}" for name, mean in self.columns().items()]
        ends = [f"{end} {share}" for end, share in self.ends.items()]
        # `turns` is a mean too: how episodes ended stands apart.
        return "; ended: ".join(filter(None, [", ".join(means), ", ".join(ends)]))


@dataclass(frozen=True)
class EvaluatedPolicy:
    """One policy in the headline table; the last of `pass_at` and `best_of` has the most tries."""

    name: str
    pass_at: Annotated[tuple[Share, ...], Field(min_length=1)]
    majority: Share | None = None
    best_of: tuple[Share, ...] = ()
    mean_length: float | None = None
    truncation_rate: float | None = None
    format_rate: float | None = None
    change: Gain | None = None
    by_source: tuple[SliceShare, ...] = ()
    by_difficulty: tuple[SliceShare, ...] = ()
    solve_histogram: tuple[int, ...] = ()
    warnings: tuple[str, ...] = ()
    episodes: EpisodeMeans | None = None


@dataclass(frozen=True)
class Evaluation:
    """What one stage found out about policies, parents first."""

    stage: str
    num_problems: int
    policies: Annotated[tuple[EvaluatedPolicy, ...], Field(min_length=1)]
    num_samples: int | None = None
    temperature: float | None = None
    exhibits: tuple[dict[str, Any], ...] = ()

    @property
    def warnings(self) -> list[str]:
        """What should be seen before the figures."""
        return [sentence for policy in self.policies for sentence in policy.warnings]

    @property
    def episodes(self) -> dict[str, EpisodeMeans]:
        """What the episodes of each policy were; none where nothing was played."""
        return {each.name: each.episodes for each in self.policies if each.episodes}

    @property
    def means(self) -> list[str]:
        """What is averaged over episodes, of any policy."""
        return list(
            dict.fromkeys(name for each in self.episodes.values() for name in each.columns())
        )

    @property
    def ends(self) -> list[str]:
        """How episodes ended, of any policy."""
        return list(dict.fromkeys(end for each in self.episodes.values() for end in each.ends))

    @property
    def drawn(self) -> str:
        """How many samples of how many problems every rate is of."""
        problems = counted(self.num_problems, "problem")
        if self.num_samples is None:
            return problems
        return f"{problems}, {counted(self.num_samples, 'sample')} each"

    def rate(self, value: float | None) -> Share | None:
        """A share of samples with its interval, for which each problem counts as one draw."""
        if value is None:
            return None
        return Share(value, *wilson(value, self.num_problems))

    def colored(self) -> Iterator[tuple[EvaluatedPolicy, int]]:
        """Each policy with the place of its color."""
        for index, policy in enumerate(self.policies):
            yield policy, index % NUM_COLORS


def evaluations(stages: Sequence[StageFacts], artifacts: Mapping[str, Path]) -> list[Evaluation]:
    """Every report that compares policies; a `ValueError` for one that cannot be read."""
    reader = TypeAdapter(Evaluation)
    contents = (
        {**read_json(item.path), "stage": item.stage}
        for item in found(stages, artifacts, ArtifactKind.REPORT)
    )
    return [reader.validate_python(each) for each in contents if _is_evaluation(each)]


def _is_evaluation(content: Mapping[str, Any]) -> bool:
    policies = content.get("policies")
    return isinstance(policies, list) and bool(policies) and "pass_at" in policies[0]


def read_json(path: Path) -> Mapping[str, Any]:
    """The object in a JSON file; an empty one where it holds something else."""
    content = json.loads(path.read_text(encoding="utf-8"))
    return content if isinstance(content, dict) else {}


def verdict(report: Evaluation) -> str:
    """What the evaluation says, in one sentence about its last policy."""
    last = report.policies[-1]
    said = (
        f"{last.name} solves {last.pass_at[0].value:.1%} of {report.num_problems} held-out "
        "problems at the first try"
    )
    if last.change is None:
        return said + "."
    points = last.change.difference
    gain = f"{100 * points.value:+.1f} points over {last.change.parent}"
    if points.low is None or points.high is None:
        return f"{said}: {gain}."
    span = f"95% interval {100 * points.low:+.1f} to {100 * points.high:+.1f}"
    return f"{said}: {gain} ({span}{'' if points.direction else ', so no clear difference'})."


def charts(report: Evaluation) -> list[Chart]:
    """Everything that an evaluation report can show."""
    first = [
        ChartRow(policy.name, policy.name, color, **_placed(policy.pass_at[0]))
        for policy, color in report.colored()
    ]
    drawn = [
        row_chart(
            "Solved at the first try", first, note=f"Mean and 95% interval over {report.drawn}."
        ),
        _pass_at_k(report),
        _histogram(report),
        _slices(report, "difficulty"),
        _slices(report, "source"),
    ]
    return [chart for chart in drawn if chart is not None]


def _placed(share: Share) -> dict[str, Any]:
    """Value, interval and words of a share, as a row of a chart has them."""
    ends = (share.low, share.high) if share.bounded else (None, None)
    return {"value": share.value, "low": ends[0], "high": ends[1], "said": str(share)}


def _pass_at_k(report: Evaluation) -> Chart:
    lines = []
    for policy, color in report.colored():
        lines.append(_series(policy.name, color, policy.pass_at))
        if policy.best_of:
            name = f"{policy.name}, best of k"
            lines.append(_series(name, color, policy.best_of, dash=True))
    return line_chart(
        "Solved within k tries",
        lines,
        x_title="k",
        unit=SHARE,
        y_range=(0.0, 1.0),
        log_x=True,
        note="Solid: at least one of k samples is right, with its 95% interval. Dashed: the reward"
        f" model's choice is. Of {report.drawn}.",
    )


def _series(name: str, color: int, shares: Sequence[Share], *, dash: bool = False) -> Series:
    low = [share.low for share in shares if share.low is not None]
    high = [share.high for share in shares if share.high is not None]
    values, ks = [share.value for share in shares], [share.k for share in shares]
    whole = len(low) == len(high) == len(values)
    return Series(
        name,
        color,
        values,
        ks,
        low=low if whole else (),
        high=high if whole else (),
        dots=True,
        dash=dash,
    )


def _histogram(report: Evaluation) -> Chart | None:
    if not all(policy.solve_histogram for policy in report.policies):
        return None
    samples = len(report.policies[0].solve_histogram) - 1
    bins = min(samples, _MOST_BINS)
    groups = []
    for policy, color in report.colored():
        counts = [0] * (bins + 1)
        for solved, count in enumerate(policy.solve_histogram):
            counts[round(solved / samples * bins)] += count
        groups.append(Series(policy.name, color, counts))
    return histogram(
        "How often each problem is solved",
        [f"{index / bins:.0%}" for index in range(bins + 1)],
        groups,
        x_title=f"right answers in {samples} tries",
        y_title="problems",
        every=max(bins // 4, 1),
        note=f"{counted(report.num_problems, 'problem')} by their solve rate. Training teaches most"
        " between the ends.",
    )


def _slices(report: Evaluation, what: str) -> Chart | None:
    parts = [(policy, color, getattr(policy, f"by_{what}")) for policy, color in report.colored()]
    if len(parts[0][2]) < 2:
        return None
    rows = [
        ChartRow(_counted_name(what, part), policy.name, color, **_placed(part.pass_at_1))
        for index in range(len(parts[0][2]))
        for policy, color, slices in parts
        for part in slices[index : index + 1]
    ]
    title = f"Solved at the first try, by {what}"
    return row_chart(title, rows, whole=True, note="Mean and 95% interval over the problems.")


def _counted_name(what: str, part: SliceShare) -> str:
    name = part.name if what == "source" else f"{what} {part.name}"
    if part.num_problems is None:
        return name
    return f"{name} · {counted(part.num_problems, 'problem')}"
