"""What a team shares without a server: its clones' ledgers, beside the bytes in the remote."""

import gzip
import uuid
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from posttrain.pipeline.execution.lockstate import NAME, committed
from posttrain.provenance.dvc.remote import DvcRemote
from posttrain.provenance.ledger import Ledger, StageRun
from posttrain.provenance.ledger.location import STATE_DIR
from posttrain.provenance.ledger.transfer import export_ledger, import_ledger
from posttrain.stage.errors import UserError
from posttrain.stage.hashing import CacheName

_FOLDER = "posttrain/ledgers"
_SUFFIX = ".jsonl.gz"
_OWN = "ledger-name"


class _DamagedLedger(UserError):
    """A ledger in the remote that is no whole archive."""


@dataclass(frozen=True)
class Sent:
    """What a push uploaded."""

    remote: str
    artifacts: int
    """Artifacts that posttrain.lock names."""
    new: int
    """Objects that the remote did not have."""
    records: int
    """Records of the ledger."""


def push(root: Path, recipe_dir: Path, ledger: Ledger, *, remote_name: str = "") -> Sent:
    """Upload the artifacts that the recipe's lock names, then the whole ledger.

    What lies in the remote under the name of this clone is read first: a copy of its folder, or
    the state that a backup did not have, may have put there what this ledger does not know.

    Args:
        root: Of the project.
        recipe_dir: Where posttrain.lock is.
        ledger: The project's.
        remote_name: The remote; empty takes the default one.

    Raises:
        UserError: Nothing was made yet, there is no remote, or it cannot be written to.

    """
    made = committed(recipe_dir)
    if not made:
        raise UserError(f"{recipe_dir} has no {NAME}; run the recipe first: posttrain run")
    remote = DvcRemote(root, remote_name)
    objects = _objects(made)
    new = remote.send(sorted(objects))
    own = f"{_own_name(root)}{_SUFFIX}"
    if own in remote.files(_FOLDER):
        # One that was cut off in the middle holds nothing that can be saved; all else is said.
        with suppress(_DamagedLedger):
            _append(remote, own, ledger)
    with TemporaryDirectory(prefix="posttrain-") as folder:
        path = Path(folder) / "ledger"
        with gzip.open(path, "wt", encoding="utf-8") as stream:
            count = export_ledger(ledger, stream)
        remote.put(path, f"{_FOLDER}/{own}")
    return Sent(remote.name, len(objects), len(new), count)


def _objects(made: Sequence[StageRun]) -> set[CacheName]:
    return {output.md5 for each in made for output in each.outputs if output.md5}


def bring_objects(root: Path, recipe_dir: Path, remote_name: str) -> None:
    """Download into the cache what a remote has of the artifacts that the recipe's lock names.

    Args:
        root: Of the project.
        recipe_dir: Where posttrain.lock is.
        remote_name: The remote.

    Raises:
        UserError: There is no such remote, or it cannot be read.

    """
    DvcRemote(root, remote_name).bring(sorted(_objects(committed(recipe_dir))))


def pull_ledgers(root: Path, ledger: Ledger, *, remote_name: str = "") -> tuple[int, int]:
    """Append what the ledgers in the remote say and this one does not.

    Args:
        root: Of the project.
        ledger: The project's.
        remote_name: The remote; empty takes the default one.

    Returns:
        Number of ledgers that others pushed, and of new records.

    Raises:
        UserError: There is no remote, it cannot be read, or a ledger there is damaged.

    """
    remote, own = DvcRemote(root, remote_name), f"{_own_name(root)}{_SUFFIX}"
    names = [each for each in remote.files(_FOLDER) if each.endswith(_SUFFIX)]
    added = sum(_append(remote, name, ledger) for name in names)
    return len(names) - names.count(own), added


def _append(remote: DvcRemote, name: str, ledger: Ledger) -> int:
    """Append what a ledger in the remote says; returns the number of new records."""
    where = f"{_FOLDER}/{name} of the remote '{remote.name}'"
    with TemporaryDirectory(prefix="posttrain-") as folder:
        path = Path(folder) / "ledger"
        remote.get(f"{_FOLDER}/{name}", path)
        try:
            with gzip.open(path, "rt", encoding="utf-8") as lines:
                return import_ledger(ledger, lines, where=where)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise _DamagedLedger(f"{where} is damaged ({error}); push it again") from None


def _own_name(root: Path) -> str:
    """Name under which this clone's ledger lies in the remote, chosen once; copies share it."""
    path = root / STATE_DIR / _OWN
    if not path.is_file():
        path.parent.mkdir(exist_ok=True)
        path.write_text(uuid.uuid4().hex, encoding="utf-8")
    return path.read_text(encoding="utf-8").strip()
