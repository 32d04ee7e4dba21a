"""The lock file against stock DVC: what we write, `dvc` must call clean, reproduce, check out."""

import shutil
import subprocess
import sys
from hashlib import md5
from pathlib import Path
from typing import Any

import pytest

from posttrain.provenance.dvc import DvcStore, StoredObject
from posttrain.stage.errors import UserError
from tests.quick import first_now

ROOT = Path(__file__).resolve().parents[3]


def test_the_lock_file_is_byte_for_byte_what_stock_dvc_writes(kit: Any, folder: Path) -> None:
    kit.stock(folder, "repro", "-q")
    theirs = (folder / "dvc.lock").read_bytes()
    (folder / "dvc.lock").unlink()
    assert DvcStore(folder, folder).write_lock(kit.entries)
    assert (folder / "dvc.lock").read_bytes() == theirs


@pytest.mark.slow
@pytest.mark.parametrize("recipe", first_now(["recipes/other", "."]))
def test_stock_dvc_finds_our_run_clean_and_can_check_it_out(
    kit: Any, tmp_path: Path, recipe: str
) -> None:
    folder = kit.make_repository(tmp_path, recipe)
    kit.run_stages(folder)
    store = DvcStore(tmp_path, folder)
    store.store(kit.outputs(folder))
    store.write_lock(kit.entries)
    before = {path: path.read_bytes() for path in (folder / "data").rglob("*") if path.is_file()}
    assert store.status() == []
    assert kit.stock(folder, "status") == "Data and pipelines are up to date."
    told = kit.stock(folder, "repro")
    assert "Stage 'make' didn't change" in told
    assert "Running stage" not in told
    for name in ("make", "read"):
        shutil.rmtree(folder / "data" / name)
    prefix = "" if recipe == "." else f"{recipe}/"
    assert [line.replace(prefix, "", 1) for line in store.status()] == [
        "make: changed outs: data/make/table.parquet deleted",
        "make: changed outs: data/make/model deleted",
        "read: changed deps: data/make/table.parquet deleted",
        "read: changed deps: data/make/model deleted",
        "read: changed outs: data/read/report.json deleted",
    ]
    kit.stock(folder, "checkout", "-q")
    after = {path: path.read_bytes() for path in (folder / "data").rglob("*") if path.is_file()}
    assert after == before
    untracked = subprocess.run(
        ["git", "status", "--porcelain", "--untracked-files=all"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    ).stdout
    assert "data/make" not in untracked
    # Opening a repository lets dvc write into .dvc/.gitignore; ours already says all of it.
    ignored = (ROOT / ".dvc" / ".gitignore").read_text()
    assert (tmp_path / ".dvc" / ".gitignore").read_text() == ignored


def test_status_names_what_changed(kit: Any, folder: Path, stored: DvcStore) -> None:
    (folder / "make.py").write_text(kit.make + "# edited\n")
    (folder / "params.yaml").write_text(kit.params.replace("steps: 3", "steps: 4"))
    assert stored.status() == [
        "make: changed deps: make.py modified",
        "read: changed deps: params.yaml {'read.steps': 'modified'}",
    ]


def test_other_entries_stay_as_they_are(kit: Any, folder: Path, stored: DvcStore) -> None:
    lock = folder / "dvc.lock"
    before = lock.read_text()
    assert not stored.write_lock(kit.entries)
    (folder / "data/read/report.json").write_text('{"changed": 1}')
    assert stored.write_lock(kit.entries[1:])
    after = lock.read_text()
    head, _, tail = before.partition("  read:\n")
    assert after.startswith(head)
    assert not after.endswith(tail)
    assert md5(b'{"changed": 1}').hexdigest() in after


def test_entries_of_stages_that_are_gone_are_dropped(folder: Path, stored: DvcStore) -> None:
    assert stored.write_lock([], keep=["make"])
    assert "  make:\n" in (folder / "dvc.lock").read_text()
    assert "  read:\n" not in (folder / "dvc.lock").read_text()


def test_known_facts_are_believed_and_files_not_read(
    kit: Any, folder: Path, stored: DvcStore
) -> None:
    fact = StoredObject("0" * 31 + "1", 7)
    stored.write_lock(kit.entries[1:], known={folder / "data/read/report.json": fact})
    assert f"md5: '{fact.md5}'\n      size: 7\n" in (folder / "dvc.lock").read_text()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("stages: {}\n", "not a lock file that DVC wrote"),
        ("schema: '2.0'\nstages:\n  a:\n    cmd: x\n<<<<<<< HEAD\n  b:\n", "merge conflict"),
        ("schema: '2.0'\nstages:\n    cmd: x\n", "damaged at its first stage"),
    ],
)
def test_a_lock_file_that_is_not_one_is_refused(folder: Path, text: str, said: str) -> None:
    (folder / "dvc.lock").write_text(text)
    with pytest.raises(UserError, match=said):
        DvcStore(folder, folder).write_lock([])
    assert (folder / "dvc.lock").read_text() == text


def test_importing_the_adapter_does_not_import_dvc() -> None:
    script = "import sys, posttrain.provenance.dvc; sys.exit('dvc' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], cwd=ROOT).returncode == 0
