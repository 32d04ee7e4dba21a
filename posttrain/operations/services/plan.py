"""Which services a project needs on one machine, where they listen and where they keep what."""

import json
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

from posttrain.operations.schedule.server import SETTINGS
from posttrain.operations.services.process import Service
from posttrain.provenance.ledger.migrate import driver_url
from posttrain.stage.errors import UserError

FOLDER = Path(".posttrain") / "services"
NAMES = ("prefect", "mlflow", "worker")
HOST = "127.0.0.1"
# Options of `up` come from here, and are handed on here, as they may hold passwords.
DATABASES = ("POSTTRAIN_PREFECT_DATABASE", "MLFLOW_BACKEND_STORE_URI")
_ADDRESSES = "addresses.json"
_MLFLOW_SERVER = Path(__file__).with_name("mlflow_server.py")
# Eight processes for scorers, 1.6 GB that wait for jobs which nothing here gives them.
_MLFLOW = {
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
}
_SERVICES = "PREFECT_SERVER_SERVICES"
_PREFECT = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "1",
    **SETTINGS,
    # An idle server asks its database every five seconds for each of these. What stands on them,
    # a run shown as late, a pause that ends, a lease that lapses, can wait half a minute.
    f"{_SERVICES}_LATE_RUNS_LOOP_SECONDS": "30",
    f"{_SERVICES}_PAUSE_EXPIRATIONS_LOOP_SECONDS": "30",
    f"{_SERVICES}_CLEANUP_RECONCILER_LOOP_SECONDS": "30",
    f"{_SERVICES}_FOREMAN_LOOP_SECONDS": "30",
    "PREFECT_SERVER_EVENTS_PROACTIVE_GRANULARITY": "PT15S",
}


@dataclass(frozen=True)
class ServicePlan:
    """Ports and databases. An empty database is SQLite beside the rest of the state."""

    root: Path
    prefect_port: int = 4200
    mlflow_port: int = 5000
    database: str | None = None
    mlflow_database: str | None = None
    limit: int = 2

    @property
    def folder(self) -> Path:
        """Logs and process files."""
        return self.root / FOLDER

    @property
    def prefect(self) -> str:
        """Address of Prefect's pages; its API is under /api."""
        return f"http://{HOST}:{self.prefect_port}"

    @property
    def mlflow(self) -> str:
        """Address of MLflow's pages and API."""
        return f"http://{HOST}:{self.mlflow_port}"

    def environment(self) -> dict[str, str]:
        """What a command needs to use these servers."""
        return {"PREFECT_API_URL": f"{self.prefect}/api", "MLFLOW_TRACKING_URI": self.mlflow}

    def services(self) -> list[Service]:
        """The services in the order in which they start."""
        return [self._prefect(), self._mlflow(), self._worker()]

    def _prefect(self) -> Service:
        state = self.root / ".posttrain" / "prefect"
        environment = {
            **_PREFECT,
            "PREFECT_HOME": str(state),
            "PREFECT_API_URL": f"{self.prefect}/api",
            "PREFECT_UI_API_URL": f"{self.prefect}/api",
        }
        if self.database:
            environment["PREFECT_API_DATABASE_CONNECTION_URL"] = _async_url(self.database)
        return Service(
            "prefect",
            (
                *(sys.executable, "-m", "prefect", "server", "start"),
                *("--host", HOST, "--port", str(self.prefect_port)),
            ),
            environment,
            f"{self.prefect}/api/health",
            database=None if self.database else state / "prefect.db",
        )

    def _mlflow(self) -> Service:
        state = self.root / ".posttrain"
        embedded = state / "mlflow.db"
        return Service(
            "mlflow",
            (
                *(sys.executable, str(_MLFLOW_SERVER), "server", "--host", HOST),
                *("--port", str(self.mlflow_port), "--workers", "1"),
                *("--artifacts-destination", str(state / "mlartifacts")),
            ),
            # In the environment, as anybody may read a process's arguments.
            {
                **_MLFLOW,
                "MLFLOW_BACKEND_STORE_URI": driver_url(
                    self.mlflow_database or f"sqlite:///{embedded}"
                ),
            },
            f"{self.mlflow}/health",
            database=None if self.mlflow_database else embedded,
        )

    def _worker(self) -> Service:
        command = (sys.executable, "-m", "posttrain", "worker", "--limit", str(self.limit))
        environment = {**self.environment(), **dict.fromkeys(DATABASES, "")}
        beat = str(self.folder / "worker.beat")
        return Service("worker", command, environment, beat, after="prefect", hung_seconds=180.0)

    def save(self) -> None:
        """Let other commands find the servers."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / _ADDRESSES).write_text(json.dumps(self.environment()), encoding="utf-8")

    def require_free_ports(self) -> None:
        """Say which port is taken before anything is started."""
        for option, port in (
            ("--prefect-port", self.prefect_port),
            ("--mlflow-port", self.mlflow_port),
        ):
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind((HOST, port))
                except OSError:
                    raise UserError(
                        f"port {port} on {HOST} is in use; stop what uses it, or give another "
                        f"with {option}"
                    ) from None


def addresses(root: Path) -> dict[str, str]:
    """Environment of the servers that `posttrain up` started last; empty if it never did."""
    try:
        return dict(json.loads((root / FOLDER / _ADDRESSES).read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}


def _async_url(url: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"postgresql+asyncpg://{rest}" if scheme in ("postgres", "postgresql") else url
