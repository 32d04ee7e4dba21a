"""What the components of a reward did over the steps, in one picture: a proxy against the gold."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from posttrain.stage.formatting import number
from posttrain.views.charts import SHARE, Chart, Series, line_chart

if TYPE_CHECKING:
    import polars as pl

_OF_COMPONENT, _BESIDE = "rl/reward/", "/deviation"
_COLORS = 7
_TENTHS = 10
_NOTE = (
    "Each from its least to its greatest mean, which the legend names, smoothed over a tenth of the"
    " steps. Where what is paid rises while what counts as solved falls, the policy learns to"
    " please the reward and not to solve the problems."
)


def components_chart(curves: Mapping[str, "pl.DataFrame"]) -> Chart | None:
    """Draw all components of a reward over the steps, each on its own range.

    Args:
        curves: Metric -> its steps and values, in order.

    Returns:
        The picture; None where fewer than two components moved, as there is nothing to compare.

    """
    drawn: list[Series] = []
    for metric, curve in curves.items():
        name = metric.removeprefix(_OF_COMPONENT)
        if name == metric or f"{metric}{_BESIDE}" not in curves:
            continue
        means = _smooth(curve["value"].to_list())
        low, high = min(means), max(means)
        if high > low:
            share = [(each - low) / (high - low) for each in means]
            told, color = f"{name} ({number(low)} to {number(high)})", 1 + len(drawn) % _COLORS
            drawn.append(Series(told, color, share, curve["step"].to_list()))
    if len(drawn) < 2:
        return None
    title = "rl/reward: components against each other"
    return line_chart(title, drawn, x_title="step", unit=SHARE, y_range=(0.0, 1.0), note=_NOTE)


def _smooth(values: Sequence[float]) -> list[float]:
    """Mean of each value with its neighbors, of which there are fewer at the ends."""
    reach = len(values) // (2 * _TENTHS)
    near = [values[max(0, at - reach) : at + reach + 1] for at in range(len(values))]
    return [sum(each) / len(each) for each in near]
