"""The one place that imports dvc: bytes in the cache, and `dvc.lock` as DVC itself writes it.

Whatever needs dvc is imported inside functions, so that importing this package costs nothing.
"""

from posttrain.provenance.dvc.lockfile import check_lock
from posttrain.provenance.dvc.records import LOCK_FILE, LockEntry, StoredObject
from posttrain.provenance.dvc.repository import check_repository
from posttrain.provenance.dvc.store import DvcStore

__all__ = ["LOCK_FILE", "DvcStore", "LockEntry", "StoredObject", "check_lock", "check_repository"]
