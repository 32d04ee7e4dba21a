"""The run sources that ship with posttrain."""

from posttrain.data.run_sources.base import RunSource
from posttrain.data.run_sources.mlflow_database import MlflowDatabase
from posttrain.data.run_sources.mlflow_server import MlflowServer
from posttrain.stage.slots import Slot

RUN_SOURCES = Slot(
    "run_source",
    RunSource,
    {"mlflow_database": MlflowDatabase, "mlflow_server": MlflowServer},
    one_of=("runs",),
)
