"""What a run without an evaluation has to show: what its stages measured on held-out rows."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from posttrain.stage.formatting import counted
from posttrain.stage.spec import ArtifactKind
from posttrain.views.report.evaluation import read_json
from posttrain.views.report.facts import StageFacts, found

_LOSS = "heldout_nll"


def headlines(stages: Sequence[StageFacts], artifacts: Mapping[str, Path]) -> list[str]:
    """A sentence for each stage that measured held-out rows or pairs, in the order of the stages.

    Reads metrics and reports by their documented names, without importing the tasks.
    """
    reports = {
        item.stage: read_json(item.path) for item in found(stages, artifacts, ArtifactKind.REPORT)
    }
    said = ((stage.name, _loss(stage.record.metrics)) for stage in stages)
    losses = {name: sentence for name, sentence in said if sentence}
    pairs = {name: _order(report) or _margin(report) for name, report in reports.items()}
    known = {**pairs, **losses}
    return [f"{stage.name}: {known[stage.name]}" for stage in stages if known.get(stage.name)]


def _loss(metrics: Mapping[str, float]) -> str:
    """Held-out loss per token, of supervised training."""
    stem = next((name for name in metrics if name.endswith(f"/{_LOSS}")), None)
    if stem is None:
        return ""
    prefix = stem.removesuffix(_LOSS)
    low, high = metrics.get(f"{stem}_low"), metrics.get(f"{stem}_high")
    span = f" (95% interval {low:.3f} to {high:.3f})" if None not in (low, high) else ""
    rows = metrics.get(f"{prefix}num_heldout_rows")
    on = f", on {counted(int(rows), 'row')}" if rows is not None else ""
    before = metrics.get(f"{stem}_before")
    was = f"; {before:.3f} before training" if before is not None else ""
    return f"held-out loss {metrics[stem]:.3f} nats a token{span}{on}{was}."


def _order(report: Mapping[str, Any]) -> str:
    """Share of held-out pairs in the right order, of reward models and preferences."""
    if "accuracy" not in report or "accuracy_low" not in report:
        return ""
    names = ("num_compared_pairs", "num_heldout_pairs", "num_pairs")
    number = next((report[name] for name in names if name in report), None)
    of = "held-out pairs" if number is None else counted(int(number), "held-out pair")
    low, high = report["accuracy_low"], report["accuracy_high"]
    return (
        f"{report['accuracy']:.1%} of {of} in the right order"
        f" (95% interval {low:.1%} to {high:.1%})."
    )


def _margin(report: Mapping[str, Any]) -> str:
    """What good answers gained over bad ones, where they answer different prompts."""
    if "margin" not in report or "num_heldout_pairs" not in report:
        return ""
    return (
        f"good held-out answers gained {report['margin']:+.3f} over bad ones (beta times the"
        f" log-ratio, {counted(report['num_heldout_pairs'], 'pair')} of such answers)."
    )
