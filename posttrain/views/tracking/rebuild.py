"""Make the MLflow view anew from the ledger: it holds nothing that the ledger does not."""

from pathlib import Path

from posttrain.provenance.ledger.annotations import TRACKED
from posttrain.provenance.ledger.ledger import Ledger
from posttrain.stage.errors import UserError
from posttrain.views.tracking.mlflow import MlflowTracker
from posttrain.views.tracking.projection import replay
from posttrain.views.tracking.sqlite import take_place


def rebuild(ledger: Ledger, state: Path, *, uri: str | None = None) -> int:
    """Replay the ledger, oldest run first; return the number of stages in it.

    Without `uri`, our own SQLite database is built beside the old one and then takes its place, so
    that a failure leaves the old one as it was; the ledger then knows the new ids. Curves of
    single steps are not in the ledger: they stay in the artifacts.
    """
    database = state / "mlflow.db"
    fresh = state / "mlflow-fresh.db"
    fresh.unlink(missing_ok=True)
    tracker = MlflowTracker(state, uri=uri or f"sqlite:///{fresh.resolve()}")
    runs = reversed(ledger.runs())
    told = replay(((run, ledger.stage_runs(run.id)) for run in runs), tracker)
    problem = tracker.close()
    if problem is not None:
        fresh.unlink(missing_ok=True)
        raise UserError(f"the MLflow view was not rebuilt: {problem}")
    if uri is None and fresh.exists():
        take_place(fresh, database)
        ids = {each: tracker.external_id(handle) for part in told for each, handle in part.items()}
        ledger.annotations.note(
            TRACKED, {each: name for each, name in ids.items() if name is not None}
        )
    return len(told.stages)
