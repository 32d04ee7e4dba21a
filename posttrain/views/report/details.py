"""Reward models, curricula and dropped rows: what else the artifacts of a run can show."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from posttrain.stage.formatting import number
from posttrain.stage.spec import ArtifactKind
from posttrain.views.report.charts import (
    SHARE,
    Chart,
    Series,
    bar_chart,
    calibration_chart,
    count_chart,
    share_labels,
)
from posttrain.views.report.evaluation import read_json
from posttrain.views.report.facts import FoundArtifact, StageFacts, found

_MOST_BINS = 16


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
        figures.append(
            calibration_chart(
                "Calibration on held-out pairs",
                [row["claimed"] for row in bins],
                [row["happened"] for row in bins],
                [row["count"] for row in bins],
            )
        )
    sources = report.get("by_source")
    if isinstance(sources, dict) and len(sources) > 1:
        bars = Series("accuracy", "c1", [part["accuracy"] for part in sources.values()])
        figures.append(
            bar_chart(
                "Pairs in the right order, by source",
                list(sources),
                [bars],
                x_title="source",
                unit=SHARE,
                top=1.0,
            )
        )
    return figures


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
    by_difficulty = (
        rates.group_by("difficulty").agg(pl.col("solve_rate").mean(), pl.len()).sort("difficulty")
    )
    return Detail(
        item.name,
        f"{number(len(rates))} problems; {number(useful)} ({useful / max(len(rates), 1):.1%}) are "
        "solved sometimes but not always, and only those teach.",
        [
            bar_chart(
                "Solve rates before reinforcement",
                share_labels(num_bins),
                [Series("problems", "c1", counts)],
                x_title="share of tries that are right",
            ),
            bar_chart(
                "Mean solve rate by difficulty",
                [str(value) for value in by_difficulty["difficulty"]],
                [Series("solve rate", "c1", by_difficulty["solve_rate"].to_list())],
                x_title="difficulty",
                unit=SHARE,
                top=1.0,
            ),
        ],
    )


def dropped_rows(stages: Sequence[StageFacts], artifacts: Mapping[str, Path]) -> list[Detail]:
    """Every table of dropped rows that is not empty, by reason."""
    details = []
    for item in found(stages, artifacts, ArtifactKind.DROPPED):
        import polars as pl

        reasons = pl.read_parquet(item.path, columns=["reason"])["reason"].value_counts(sort=False)
        rows = reasons.sort(["count", "reason"], descending=[True, False]).rows()
        if rows:
            total = sum(count for _, count in rows)
            chart = count_chart(f"{item.name}: {number(total)} rows, by reason", rows[:12])
            details.append(Detail(item.name, "", [chart]))
    return details
