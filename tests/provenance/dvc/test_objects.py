"""Objects of the cache: stored as DVC stores them, checked before they are used."""

import errno
import shutil
from hashlib import md5
from pathlib import Path
from typing import Any

import pytest

from posttrain.provenance.dvc import DvcStore, StoredObject
from posttrain.stage.errors import UserError


def test_store_describes_as_dvc_does(kit: Any, folder: Path) -> None:
    kit.run_stages(folder)
    facts = DvcStore(folder, folder).store(kit.outputs(folder))
    table, model, _ = (facts[out] for out in kit.outputs(folder))
    assert table == StoredObject(md5(bytes(range(256))).hexdigest(), 256)
    listing = (
        f'[{{"md5": "{md5(b"").hexdigest()}", "relpath": "sub/empty"}}, '
        f'{{"md5": "{md5(b"w" * 1000).hexdigest()}", "relpath": "weights"}}]'
    )
    assert model == StoredObject(md5(listing.encode()).hexdigest() + ".dir", 1000, num_files=2)


def test_restore_brings_back_files_and_directories(
    kit: Any, folder: Path, stored: DvcStore
) -> None:
    facts = {out: stored.describe(out) for out in kit.outputs(folder)}
    for name in ("make", "read"):
        shutil.rmtree(folder / "data" / name)
    (folder / "data/make/model").mkdir(parents=True)
    (folder / "data/make/model/stale").write_text("from another version")
    assert all(stored.restore(out, fact.md5) for out, fact in facts.items())
    assert stored.status() == []
    assert not (folder / "data/make/model/stale").exists()
    assert not list(folder.glob("data/**/*.tmp"))
    (folder / "data/make/table.parquet").write_text("ours to change")


@pytest.mark.parametrize("clones", [True, False])
def test_no_object_has_its_name_before_it_is_whole(
    kit: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, clones: bool
) -> None:
    # What a kill would leave: what lies there while the file system is asked for a clone.
    from dvc_objects.fs import system

    names: set[str] = set()

    def reflink(source: str, target: str) -> None:
        Path(target).touch()
        names.update(path.name for path in folder.glob(".dvc/cache/files/md5/??/*"))
        if not clones:
            Path(target).unlink()
            raise OSError(errno.ENOTSUP, "no clones here")
        shutil.copyfile(source, target)

    monkeypatch.setattr(system, "reflink", reflink)
    kit.run_stages(folder)
    store = DvcStore(folder, folder)
    (fact,) = store.store([folder / "data/make/table.parquet"]).values()
    assert names
    assert all(name.endswith(".tmp") for name in names)
    assert store.has(fact.md5)
    assert not list(folder.glob(".dvc/cache/files/md5/??/*.tmp"))


def test_what_is_nowhere_is_not_restored(folder: Path, stored: DvcStore) -> None:
    assert not stored.has("f" * 32)
    assert not stored.restore(folder / "data/make/other", "f" * 32)
    assert not (folder / "data/make/other").exists()


def test_a_directory_is_there_only_with_all_its_files(
    kit: Any, folder: Path, stored: DvcStore
) -> None:
    model = stored.describe(folder / "data/make/model").md5
    assert stored.has(model)
    kit.object_path(folder, md5(b"w" * 1000).hexdigest()).unlink()
    assert not stored.has(model)
    assert not stored.restore(folder / "data/make/model", model)


@pytest.mark.parametrize("what", ["file", "member", "listing"])
def test_a_damaged_object_is_named_and_never_used(
    kit: Any, folder: Path, stored: DvcStore, what: str
) -> None:
    out = folder / ("data/make/table.parquet" if what == "file" else "data/make/model")
    oid = stored.describe(out).md5
    victim = kit.object_path(folder, md5(b"w" * 1000).hexdigest() if what == "member" else oid)
    kit.damage(victim)
    shutil.rmtree(folder / "data/make")
    with pytest.raises(UserError) as caught:
        stored.restore(out, oid)
    assert str(victim) in str(caught.value)
    assert "run again" in str(caught.value)
    assert not out.exists()
    assert not stored.has(oid)


def test_storing_the_same_bytes_again_heals_a_damaged_object(
    kit: Any, folder: Path, stored: DvcStore
) -> None:
    table = folder / "data/make/table.parquet"
    oid = stored.describe(table).md5
    kit.damage(kit.object_path(folder, oid))
    stored.store([table])
    assert kit.object_path(folder, oid).read_bytes() == bytes(range(256))
    table.unlink()
    assert stored.restore(table, oid)


@pytest.mark.slow
def test_a_damaged_object_is_fetched_again_from_a_remote(
    kit: Any, folder: Path, stored: DvcStore, tmp_path_factory: pytest.TempPathFactory
) -> None:
    remote = tmp_path_factory.mktemp("remote")
    kit.stock(folder, "remote", "add", "-d", "-q", "store", str(remote))
    kit.stock(folder, "push", "-q")
    model = folder / "data/make/model"
    oid = stored.describe(model).md5
    kit.damage(kit.object_path(folder, md5(b"w" * 1000).hexdigest()))
    shutil.rmtree(model)
    fresh = DvcStore(folder, folder)
    assert fresh.restore(model, oid)
    assert (model / "weights").read_text() == "w" * 1000
    assert fresh.status() == []


@pytest.mark.parametrize("link", ["hardlink", "symlink"])
def test_links_are_used_where_the_cache_asks_for_them(kit: Any, folder: Path, link: str) -> None:
    with (folder / ".dvc/config.local").open("a") as config:
        config.write(f"[cache]\n    type = {link}\n")
    kit.run_stages(folder)
    store = DvcStore(folder, folder)
    facts = store.store(kit.outputs(folder))
    store.write_lock(kit.entries)
    table = folder / "data/make/table.parquet"
    oid = facts[table].md5
    # A hard link saves the second copy at once; a symbolic one appears when DVC checks out.
    assert table.samefile(kit.object_path(folder, oid)) == (link == "hardlink")
    shutil.rmtree(folder / "data/make")
    assert all(store.restore(out, fact.md5) for out, fact in facts.items())
    assert table.samefile(kit.object_path(folder, oid))
    assert store.status() == []


def test_a_cache_that_cannot_be_written_is_a_sentence(kit: Any, folder: Path) -> None:
    kit.run_stages(folder)
    with (folder / ".dvc/config.local").open("a") as config:
        config.write("[cache]\n    dir = /sys/posttrain-cache\n")
    with pytest.raises(UserError, match="cannot write the DVC cache .*/sys/posttrain-cache"):
        DvcStore(folder, folder).store(kit.outputs(folder))


def test_a_full_disk_is_a_sentence_and_leaves_no_object(
    kit: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kit.run_stages(folder)

    def full(_source: str, target: str, **_options: object) -> None:
        Path(target).write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    store = DvcStore(folder, folder)
    assert store.cache.name == "cache"  # it is open
    monkeypatch.setattr("dvc_objects.fs.local.copyfile", full)
    with pytest.raises(UserError, match="no space left; free some"):
        store.store(kit.outputs(folder)[:1])
    assert not store.has(md5(bytes(range(256))).hexdigest())


def test_a_missing_repository_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no .dvc folder"):
        _ = DvcStore(tmp_path, tmp_path).cache
    (tmp_path / ".dvc").mkdir()
    with pytest.raises(UserError, match="git init"):
        _ = DvcStore(tmp_path, tmp_path).cache


def test_a_directory_below_an_ignored_folder_is_stored_with_its_files(folder: Path) -> None:
    # Claims are run there: what is no dependency of a recipe is an output all the same.
    (folder / ".dvcignore").write_text("*.pyc\n.hidden/\n")
    store = DvcStore(folder, folder)
    facts = {}
    for place in (".hidden/claim/model", "data/model"):
        (folder / place / "sub").mkdir(parents=True)
        (folder / place / "sub" / "weights").write_text("w" * 9)
        facts |= store.store([folder / place])
    hidden, seen = facts.values()
    assert (hidden.num_files, hidden) == (1, seen)
    shutil.rmtree(folder / ".hidden")
    assert store.restore(folder / ".hidden/claim/model", hidden.md5)
    assert (folder / ".hidden/claim/model/sub/weights").read_text() == "w" * 9
