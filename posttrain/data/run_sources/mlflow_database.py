"""Runs of an MLflow database, read as a file."""

import math
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from posttrain.data.run_sources.base import FetchedRun, RunSource, fits
from posttrain.stage.errors import UserError, first_line, nearest


class MlflowDatabase(RunSource):
    """Read the runs of an experiment from an SQLite database of MLflow's, which nothing changes.

    Such a file is MLflow's default store; folders of its former file store become one by `mlflow
    migrate-filestore`. One that is written through a log beside it, as posttrain's own
    `.posttrain/mlflow.db`, is refused with the command that makes a whole copy.
    """

    SOURCE = "MLflow 3.17, mlflow/store/tracking/dbmodels/models.py (runs, metrics, params, tags)"

    kind: Literal["mlflow_database"] = "mlflow_database"
    file: str
    """The database, from the recipe's folder on."""
    experiment: str
    """Name of the experiment."""

    def path(self) -> str:
        """Name the database; see `RunSource.path`."""
        return self.file

    def runs(
        self, metrics: Sequence[str], where: Mapping[str, str], file: Path | None
    ) -> Sequence[FetchedRun]:
        """Read the tables; see `RunSource.runs`."""
        assert file is not None
        with file.open("rb") as stored:
            # Bytes 18 and 19 of the header are 2 where SQLite writes ahead, to a file beside this.
            if stored.read(20)[18:] == b"\x02\x02":
                raise UserError(
                    f"{self.file}: this database is written through a log beside it, in which runs"
                    " may lie that the file has not; name a copy that has all of it: sqlite3"
                    f" {self.file} \"VACUUM INTO 'copy.db'\""
                )
        try:
            # Immutable: no journal is looked for, and no lock written beside an input.
            found = sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
            try:
                return [
                    FetchedRun(run, name, facts, _points(found, run, metrics))
                    for run, name in self._ended(found)
                    if fits(facts := _facts(found, run), where)
                ]
            finally:
                found.close()
        except sqlite3.Error as error:
            raise UserError(
                f"{self.file}: this is no database of MLflow's: {first_line(error)}; name the file"
                " that its tracking URI sqlite:///... ends with"
            ) from None

    def _ended(self, found: sqlite3.Connection) -> list[tuple[str, str]]:
        names = dict(found.execute("SELECT name, experiment_id FROM experiments"))
        if self.experiment not in names:
            hint = nearest(self.experiment, names) or f"; there are {', '.join(sorted(names))}"
            raise UserError(f"{self.file}: there is no experiment '{self.experiment}'{hint}")
        return found.execute(
            "SELECT run_uuid, coalesce(name, run_uuid) FROM runs WHERE experiment_id = ?"
            " AND status = 'FINISHED' AND lifecycle_stage = 'active' ORDER BY run_uuid",
            (names[self.experiment],),
        ).fetchall()


def _facts(found: sqlite3.Connection, run: str) -> dict[str, str]:
    facts: dict[str, str] = {}
    for table in ("tags", "params"):
        facts |= dict(
            found.execute(f"SELECT key, value FROM {table} WHERE run_uuid = ?", (run,))  # noqa: S608 - of two names
        )
    return facts


def _points(
    found: sqlite3.Connection, run: str, metrics: Sequence[str]
) -> dict[str, dict[int, float]]:
    points: dict[str, dict[int, float]] = {}
    for metric in metrics:
        rows = found.execute(
            "SELECT step, value FROM metrics WHERE run_uuid = ? AND key = ? AND NOT is_nan"
            " ORDER BY step, timestamp, value",
            (run, metric),
        )
        points[metric] = {step: value for step, value in rows if math.isfinite(value)}
    return points
