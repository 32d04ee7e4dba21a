"""Sends OpenLineage events by its own client, in a process of its own.

The client reads its environment and configuration: address, endpoint, key, retries, and transports
other than HTTP.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from posttrain.provenance.ledger import Run, StageRun
from posttrain.provenance.ledger.ledger import Ledger
from posttrain.provenance.ledger.location import ledger_location
from posttrain.provenance.lineage.render.openlineage import Surroundings, end_event, start_event
from posttrain.stage.errors import UserError
from posttrain.stage.extras import extra_line
from posttrain.views.tracking.base import Finished, Started


@dataclass
class OpenLineageWriter:
    """Sends through `transport`; `parts_of` asks the ledger what artifacts carry inside."""

    transport: Any
    ledger: Ledger
    root: Path
    runs: dict[str, tuple[Run, Path]] = field(default_factory=dict)
    begun: dict[str, tuple[Surroundings, Mapping[str, Path]]] = field(default_factory=dict)

    def start(self, handle: str, started: Started, _moment: float) -> None:
        """Send the START of a stage; of a run it is only kept what its stages say."""
        record = started.record
        if started.parent is None or not isinstance(record, StageRun):
            if isinstance(record, Run):
                self.runs[handle] = record, self.root / started.folder
            return
        run, folder = self.runs[started.parent]
        around = Surroundings(run, folder)
        self.begun[handle] = around, started.places
        self.transport.emit(start_event(record, self._known(around, record, started.places)))

    def finish(self, handle: str, finished: Finished, _moment: float) -> None:
        """Send the end of a stage."""
        record = finished.record
        if handle in self.begun and isinstance(record, StageRun):
            around, places = self.begun.pop(handle)
            known = self._known(around, record, {**places, **finished.places})
            self.transport.emit(end_event(record, known))

    def attach(self, run: str, files: Sequence[Path]) -> None:
        """Files of a run are no lineage."""

    def flush(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """Let the transport send what it holds."""
        self.transport.close()
        self.ledger.close()

    def _known(
        self, around: Surroundings, record: StageRun, places: Mapping[str, Path]
    ) -> Surroundings:
        digests = sorted({each.digest for each in (*record.inputs, *record.outputs)})
        parts = self.ledger.compositions.parts_of(digests)
        return replace(around, parts=parts, find=lambda each: places.get(each.digest))


def prepare(*, alone: bool) -> None:
    """Import the client.

    Args:
        alone: Whether this process is the writer's own.

    Raises:
        UserError: It is not installed.

    """
    try:
        import openlineage.client  # noqa: F401 - it is imported ahead of its use
    except ModuleNotFoundError:
        raise UserError(
            "OPENLINEAGE_URL is set and openlineage-python is not installed;"
            f" {extra_line('openlineage')}, or unset it"
        ) from None


def open_openlineage(
    state: Path, uri: str | None, external: dict[str, str], *, owner: str
) -> OpenLineageWriter:
    """Open the client that the environment describes.

    Args:
        state: State directory of the project.
        uri: Address, in place of the environment's.
        external: Nothing: the ledger keeps MLflow's ids.
        owner: Of the runs; events do not say it.

    """
    from openlineage.client import OpenLineageClient

    from posttrain.provenance.ledger import open_ledger

    client = OpenLineageClient(url=uri) if uri else OpenLineageClient()
    ledger = open_ledger(ledger_location(state.parent))
    return OpenLineageWriter(client.transport, ledger, state.parent)
