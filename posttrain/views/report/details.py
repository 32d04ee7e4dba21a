"""Reward models, curricula and dropped rows: what else the artifacts of a run can show."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from posttrain.stage.formatting import counted, number
from posttrain.stage.spec import ArtifactKind
from posttrain.views.charts import (
    NUMBER,
    Chart,
    ChartRow,
    Series,
    calibration_chart,
    histogram,
    row_chart,
)
from posttrain.views.report.evaluation import Share, read_json
from posttrain.views.report.facts import FoundArtifact, StageFacts, found
from posttrain.views.report.intervals import Z_95, wilson

_MOST_BINS = 16
_MOST_REASONS = 12


@dataclass(frozen=True)
class Detail:
    """Figures of one artifact, under its name and a line that sums it up."""

    name: str
    summary: str
    figures: list[Chart]


def reward_models(stages: Sequence[StageFacts], artifacts: Mapping[str, Path]) -> list[Detail]:
    """Every report that grades a reward model."""
    graded = []
    for item in found(stages, artifacts, ArtifactKind.REPORT):
        report = read_json(item.path)
        if "auroc" not in report or "accuracy" not in report:
            continue
        graded.append(Detail(item.stage, _reward_summary(report), _reward_figures(report)))
    return graded


def _reward_summary(report: Mapping[str, float]) -> str:
    parts = [f"Orders {report['accuracy']:.1%} of held-out pairs right"]
    if "accuracy_low" in report:
        parts[0] += f" ({report['accuracy_low']:.1%} to {report['accuracy_high']:.1%})"
    if "num_pairs" in report:
        parts[0] += f", of {number(report['num_pairs'])}"
    parts.append(f"AUROC {report['auroc']:.3f}")
    if "ece" in report:
        parts.append(f"expected calibration error {report['ece']:.3f}")
    if "length_accuracy" in report:
        parts.append(f"length alone would order {report['length_accuracy']:.1%}")
    return "; ".join(parts) + "."


def _reward_figures(report: Mapping[str, object]) -> list[Chart]:
    figures = []
    reliability = report.get("reliability")
    if isinstance(reliability, list):
        bins = [row for row in reliability if row["count"]]
        happened = [(row["happened"], *wilson(row["happened"], row["count"])) for row in bins]
        figures.append(
            calibration_chart(
                "Calibration on held-out pairs",
                [row["claimed"] for row in bins],
                happened,
                [row["count"] for row in bins],
            )
        )
    sources = report.get("by_source")
    if isinstance(sources, dict) and len(sources) > 1:
        rows = [_of_source(name, part) for name, part in sources.items()]
        note = "Mean and 95% interval over the pairs."
        figures.append(
            row_chart("Pairs in the right order, by source", rows, whole=True, note=note)
        )
    return figures


def _of_source(name: str, part: Mapping[str, float]) -> ChartRow:
    value, pairs = part["accuracy"], int(part.get("num_pairs", 0))
    low, high = wilson(value, pairs) if pairs else (None, None)
    label = f"{name} · {counted(pairs, 'pair')}" if pairs else name
    return ChartRow(label, "accuracy", 1, value, str(Share(value, low, high)), low, high)


def curricula(stages: Sequence[StageFacts], artifacts: Mapping[str, Path]) -> list[Detail]:
    """Every table of solve rates."""
    return [_curriculum(item) for item in found(stages, artifacts, ArtifactKind.SOLVE_RATES)]


def _curriculum(item: FoundArtifact) -> Detail:
    import polars as pl

    rates = pl.read_parquet(item.path, columns=["solve_rate", "difficulty", "attempts"])
    num_bins = min(_MOST_BINS, max(rates["attempts"].to_list(), default=1))
    bins = (rates["solve_rate"] * num_bins).round().cast(pl.Int64)
    counts = [int((bins == index).sum()) for index in range(num_bins + 1)]
    useful = int(((rates["solve_rate"] > 0) & (rates["solve_rate"] < 1)).sum())
    rate = pl.col("solve_rate")
    by_difficulty = (
        rates.group_by("difficulty")
        .agg(mean=rate.mean(), spread=rate.std().fill_null(0.0), count=pl.len())
        .sort("difficulty")
    )
    return Detail(
        item.name,
        f"{number(len(rates))} problems; {number(useful)} ({_of_all(useful, len(rates))}) are "
        "solved sometimes but not always, and only those teach.",
        [
            histogram(
                "Solve rates before reinforcement",
                [f"{index / num_bins:.0%}" for index in range(num_bins + 1)],
                [Series("problems", 1, counts)],
                x_title="share of tries that are right",
                y_title="problems",
                every=max(num_bins // 4, 1),
            ),
            row_chart(
                "Mean solve rate by difficulty",
                [_of_difficulty(row) for row in by_difficulty.iter_rows(named=True)],
                whole=True,
                note="Mean and 95% interval over the problems.",
            ),
        ],
    )


def _of_all(part: int, whole: int) -> str:
    """A share with its interval; of nothing there is none."""
    return str(Share(part / whole, *wilson(part / whole, whole))) if whole else "0.0%"


def _of_difficulty(row: Mapping[str, float]) -> ChartRow:
    """The mean over problems with the interval of a normal mean."""
    value, reach = row["mean"], Z_95 * row["spread"] / row["count"] ** 0.5
    low, high = max(0.0, value - reach), min(1.0, value + reach)
    label = f"difficulty {row['difficulty']:g} · {counted(int(row['count']), 'problem')}"
    return ChartRow(label, "solve rate", 1, value, str(Share(value, low, high)), low, high)


def dropped_rows(stages: Sequence[StageFacts], artifacts: Mapping[str, Path]) -> list[Detail]:
    """Every table of dropped rows that is not empty, by reason."""
    details = []
    for item in found(stages, artifacts, ArtifactKind.DROPPED):
        import polars as pl

        reasons = pl.read_parquet(item.path, columns=["reason"])["reason"].value_counts(sort=False)
        rows = reasons.sort(["count", "reason"], descending=[True, False]).rows()
        if rows:
            total = sum(count for _, count in rows)
            shown = [
                ChartRow(reason, "rows", 0, count, f"{number(count)} ({count / total:.1%})")
                for reason, count in rows[:_MOST_REASONS]
            ]
            title = f"{item.name}: {number(total)} rows, by reason"
            chart = row_chart(title, shown, mark="bar", unit=NUMBER, note=_left_out(len(rows)))
            details.append(Detail(item.name, "", [chart]))
    return details


def _left_out(reasons: int) -> str:
    rarer = reasons - _MOST_REASONS
    return f"{counted(rarer, 'rarer reason')} not shown." if rarer > 0 else ""
