"""Learning curves: what a stage measured at each step, as a table and as a stream."""

from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import polars as pl

from posttrain.data.schemas import CURVE
from posttrain.data.tables import write_table
from posttrain.learning.training.alarms.base import Alarm
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError


class Curve:
    """Collects (step, metric, value) rows; each goes to the tracker as well."""

    def __init__(self, context: StageContext) -> None:
        self._context = context
        self._rows: list[tuple[int, str, float]] = []
        self._values: dict[str, list[float]] = {}
        self._before = 0

    def begin_after(self, step: int) -> None:
        """Count the steps to come from `step` on: those of a further round."""
        self._before = step

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Record the metrics of one step.

        Args:
            step: Counted from 1, within what goes on now.
            metrics: Value by full name.

        """
        step += self._before
        self._take((step, name, float(value)) for name, value in metrics.items())
        self._context.log(step, metrics)

    def last(self, metric: str, *, window: int = 1) -> float:
        """Average the last values of a metric.

        Args:
            metric: Full name, recorded at least once.
            window: Number of values.

        Returns:
            Their mean.

        """
        values = self.values(metric)[-window:]
        return sum(values) / len(values)

    def values(self, metric: str) -> list[float]:
        """Return all values of a metric so far, by its full name; none if it was not measured."""
        return list(self._values.get(metric, ()))

    def heed(
        self,
        alarms: Mapping[str, Alarm],
        step: int,
        *,
        stage: str,
        steps: int,
        kept: str = "a checkpoint",
        save: Callable[[int], None] | None = None,
    ) -> None:
        """Note the alarms that begin with the last step; end the run where one stops it.

        Args:
            alarms: By name.
            step: Steps that were made.
            stage: Name before those of the metrics.
            steps: Those that are planned.
            kept: What lies in the scratch folder of a run that was stopped.
            save: Keeps what there is, for the run to go on from; None where it is kept already, as
                of a run that was taken up again and is still as it was when it was stopped.

        Raises:
            UserError: An alarm stops the run.

        """
        for name, alarm in alarms.items():
            values = self.values(f"{stage}/{alarm.METRIC}")
            told = alarm.sounds(values)
            if told is None:
                continue
            if alarm.does == "stop":
                if save is not None:
                    save(step)
                raise UserError(
                    f"{stage}: {told}; alarms.{name} stopped the run after step {step} of {steps},"
                    f" with {kept} kept in {self._context.scratch}; mend the cause, or set `does`"
                    " there to warn and run again to go on"
                )
            if save is not None and alarm.sounds(values[:-1]) is None:
                self._context.note(f"{stage}.alarms.{name}: {told}")

    def state_dict(self) -> dict[str, Any]:
        """All rows so far, as plain values."""
        return {"rows": list(self._rows)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from the rows of an earlier attempt.

        They go to the tracker once more, which may have lost what it had not yet written.

        Args:
            state: What `state_dict` gave.

        """
        self._rows, self._values = [], {}
        self._take((int(step), str(name), float(value)) for step, name, value in state["rows"])
        for step, rows in groupby(self._rows, key=itemgetter(0)):
            self._context.log(step, {name: value for _, name, value in rows})

    def metrics(self) -> dict[str, float]:
        """The last value of every metric."""
        return {name: value for _, name, value in self._rows}

    def write(self, path: Path) -> None:
        """Write the CURVE table."""
        write_table(pl.DataFrame(self._rows, schema=CURVE, orient="row"), path, CURVE)

    def _take(self, rows: Iterable[tuple[int, str, float]]) -> None:
        for row in rows:
            self._rows.append(row)
            self._values.setdefault(row[1], []).append(row[2])
