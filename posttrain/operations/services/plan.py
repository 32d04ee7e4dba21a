"""Which services a project needs on one machine, where they listen and where they keep what."""

import json
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

from posttrain.operations.services.process import Service
from posttrain.provenance.ledger.migrate import driver_url
from posttrain.stage.errors import UserError

FOLDER = Path(".posttrain") / "services"
NAMES = ("prefect", "mlflow", "worker")
HOST = "127.0.0.1"
_ADDRESSES = "addresses.json"


@dataclass(frozen=True)
class ServicePlan:
    """Ports and databases. An empty database is SQLite beside the rest of the state."""

    root: Path
    prefect_port: int = 4200
    mlflow_port: int = 5000
    database: str | None = None
    mlflow_database: str | None = None
    pool: str = "posttrain"
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
        state = self.root / ".posttrain"
        port = str(self.prefect_port)
        environment = {
            "PREFECT_HOME": str(state / "prefect"),
            "PREFECT_API_URL": f"{self.prefect}/api",
            "PREFECT_UI_API_URL": f"{self.prefect}/api",
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            # Our worker lays out what comes next, one run ahead: Prefect's own scheduler lays out
            # a hundred, which pile up where nobody starts them.
            "PREFECT_SERVER_SERVICES_SCHEDULER_ENABLED": "false",
            "DO_NOT_TRACK": "1",
        }
        if self.database:
            environment["PREFECT_API_DATABASE_CONNECTION_URL"] = _async_url(self.database)
        command = (sys.executable, "-m", "prefect", "server", "start")
        return Service(
            "prefect",
            (*command, "--host", HOST, "--port", port),
            environment,
            f"{self.prefect}/api/health",
        )

    def _mlflow(self) -> Service:
        state = self.root / ".posttrain"
        store = driver_url(self.mlflow_database or f"sqlite:///{state / 'mlflow.db'}")
        command = (
            *(sys.executable, "-m", "mlflow", "server", "--host", HOST),
            *("--port", str(self.mlflow_port), "--workers", "1"),
            *("--backend-store-uri", store),
            *("--artifacts-destination", str(state / "mlartifacts")),
        )
        quiet = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}
        return Service("mlflow", command, quiet, f"{self.mlflow}/health")

    def _worker(self) -> Service:
        command = (
            *(sys.executable, "-m", "posttrain", "worker"),
            *("--pool", self.pool, "--limit", str(self.limit)),
        )
        beat = str(self.folder / "worker.beat")
        return Service("worker", command, self.environment(), beat, end_seconds=30.0)

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
