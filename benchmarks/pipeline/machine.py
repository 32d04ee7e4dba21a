"""What the figures were measured on."""

import os
import platform
import sqlite3
from importlib.metadata import version

from posttrain.provenance.circumstances import processor


def described() -> dict[str, object]:
    """Processor, cores, load and the versions that matter."""
    return {
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "load": [round(load, 1) for load in os.getloadavg()],
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        **{name: version(name) for name in ("dvc", "prefect", "mlflow", "torch", "polars")},
    }
