"""The MLflow view: `posttrain mlflow rebuild` makes it again from the ledger."""

from posttrain.views.tracking.queued import QueuedTracker

REMEDY = "the run goes on without it; `posttrain mlflow rebuild` restores it from the ledger"


class MlflowTracker(QueuedTracker):
    """Writes to `uri`, by default the SQLite database `mlflow.db` in the state directory."""

    title = "MLflow"
    writer = "posttrain.views.tracking.mlflow_writer:open_mlflow"
    remedy = REMEDY
