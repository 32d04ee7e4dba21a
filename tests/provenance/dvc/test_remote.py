"""What is sent to a remote arrives whole: lists of directories with their files, and only those."""

import shutil
import subprocess
import sys
from hashlib import md5
from pathlib import Path
from typing import Any

import pytest

from posttrain.provenance.dvc import DvcStore
from posttrain.provenance.dvc.remote import DvcRemote

WEIGHTS = md5(b"w" * 1000).hexdigest()


@pytest.fixture
def sent(kit: Any, folder: Path, stored: DvcStore, tmp_path: Path) -> Any:
    """Three artifacts, one of them a directory of two files, in a remote that was empty."""
    remote = tmp_path / "remote"
    kit.stock(folder, "remote", "add", "--default", "team", str(remote))
    objects = {out: stored.describe(out).md5 for out in kit.outputs(folder)}
    new = DvcRemote(folder).send(sorted(objects.values()))
    assert sorted(new) == sorted(objects.values())
    return objects, remote / "files/md5"


def held(remote: Path) -> set[str]:
    return {path.parent.name + path.name for path in remote.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_files_of_a_directory_are_sent_with_its_list(sent: Any, folder: Path) -> None:
    objects, remote = sent
    assert held(remote) == {*objects.values(), WEIGHTS, md5(b"").hexdigest()}
    assert DvcRemote(folder).send(sorted(objects.values())) == []


def test_another_machine_restores_them_byte_by_byte(sent: Any, folder: Path) -> None:
    objects, _ = sent
    shutil.rmtree(folder / ".dvc/cache")
    shutil.rmtree(folder / "data")
    store = DvcStore(folder, folder)
    assert all(store.remote_has(name) for name in objects.values())
    assert all(store.restore(out, name) for out, name in objects.items())
    assert (folder / "data/make/model/weights").read_text() == "w" * 1000
    assert (folder / "data/make/model/sub/empty").read_text() == ""
    assert (folder / "data/make/table.parquet").read_bytes() == bytes(range(256))


@pytest.mark.slow
def test_a_file_that_the_remote_lost_is_missed_and_sent_again(sent: Any, folder: Path) -> None:
    """Also where DVC remembers to have sent it."""
    objects, remote = sent
    whole = held(remote)
    pushed = subprocess.run(
        [sys.executable, "-m", "dvc", "push", "-q"], cwd=folder, capture_output=True, check=False
    )
    assert pushed.returncode == 0, pushed.stderr
    (remote / WEIGHTS[:2] / WEIGHTS[2:]).unlink()
    (model,) = (name for name in objects.values() if name.endswith(".dir"))
    assert DvcStore(folder, folder).remote_has(model)  # the cache has what is lost there
    shutil.move(folder / ".dvc/cache", folder / "elsewhere")
    assert not DvcStore(folder, folder).remote_has(model)
    shutil.rmtree(folder / ".dvc/cache", ignore_errors=True)
    shutil.move(folder / "elsewhere", folder / ".dvc/cache")
    assert DvcRemote(folder).send(sorted(objects.values())) == [model]
    assert held(remote) == whole
