"""Digests of files and trees, and when a remembered digest may be trusted."""

import hashlib
import os
import pathlib
import shutil
import time

import pytest

from posttrain.stage.errors import UserError
from posttrain.stage.hashing import StatCache, digest_path

LONG_AGO = 1_600_000_000


def sha(data):
    return hashlib.sha256(data).hexdigest()


def age(path, seconds=LONG_AGO):
    os.utime(path, (seconds, seconds))


def test_file_is_the_hash_of_its_bytes(tmp_path):
    (tmp_path / "a").write_bytes(b"hello")
    digest = digest_path(tmp_path / "a")
    # sha256 of "hello", as `printf hello | sha256sum` prints it
    assert digest.sha256 == "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
    assert (digest.size, digest.files) == (5, 1)


def test_directory_is_the_hash_of_its_sorted_listing(tmp_path):
    tree = tmp_path / "tree"
    (tree / "b").mkdir(parents=True)
    (tree / "empty").mkdir()
    (tree / "b" / "x").write_bytes(b"1")
    (tree / "b.txt").write_bytes(b"22")
    (tree / ".hidden").write_bytes(b"")
    listing = (
        b".hidden\0" + sha(b"").encode() + b"\n"
        # "b.txt" sorts before "b/x": '.' is 0x2e and '/' is 0x2f
        b"b.txt\0" + sha(b"22").encode() + b"\n"
        b"b/x\0" + sha(b"1").encode() + b"\n"
    )
    digest = digest_path(tree)
    assert digest.sha256 == sha(listing)
    assert (digest.size, digest.files) == (3, 3)


def test_renaming_or_moving_a_file_changes_the_tree(tmp_path):
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "a").write_bytes(b"1")
    before = digest_path(tree)
    (tree / "a").rename(tree / "b")
    assert digest_path(tree).sha256 != before.sha256


def test_linked_file_counts_as_its_content_and_linked_folder_is_refused(tmp_path):
    (tmp_path / "object").write_bytes(b"1")
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "a").symlink_to(tmp_path / "object")
    assert digest_path(tree).size == 1
    (tree / "sub").symlink_to(tmp_path)
    with pytest.raises(UserError, match="sub is a link to a directory"):
        digest_path(tree)
    (tmp_path / "alias").symlink_to(tree)
    with pytest.raises(UserError, match="alias is a link to a directory"):
        digest_path(tmp_path / "alias")


@pytest.mark.parametrize("name", ["missing", "pipe", "dangling"])
def test_what_cannot_be_read_is_named(tmp_path, name):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    with pytest.raises(UserError, match=name):
        digest_path(tmp_path / name)


def test_cache_answers_for_an_unchanged_file_without_reading_it(tmp_path):
    file = tmp_path / "a"
    file.write_bytes(b"old")
    age(file)
    cache = StatCache.load(tmp_path / "cache.json")
    digest_path(file, cache=cache)
    # Another digest stands there: what is answered was not read.
    cache.entries = {name: (*row[:4], sha(b"new")) for name, row in cache.entries.items()}
    cache.save()
    again = StatCache.load(tmp_path / "cache.json")
    assert digest_path(file, cache=again).sha256 == sha(b"new")


def test_a_byte_that_was_changed_and_its_time_put_back_is_noticed(tmp_path):
    file = tmp_path / "a"
    file.write_bytes(b"old")
    age(file)
    cache = StatCache(tmp_path / "cache.json")
    digest_path(file, cache=cache)
    assert cache.entries
    with file.open("r+b") as stream:
        stream.write(b"new")
    age(file)
    assert digest_path(file, cache=cache).sha256 == sha(b"new")


def test_what_is_known_goes_with_a_file_that_is_renamed_and_linked(tmp_path):
    file, moved = tmp_path / "a", tmp_path / "b"
    file.write_bytes(b"old")
    age(file)
    cache = StatCache(tmp_path / "cache.json")
    digest_path(file, cache=cache)
    cache.moved(file, moved)
    file.rename(moved)
    (tmp_path / "c").hardlink_to(moved)
    cache.settled(moved)
    assert cache.get(str(moved), moved.stat()) == sha(b"old")


def test_a_folder_takes_the_place_of_one_that_had_more_files(tmp_path):
    """As where a stage makes a model of another kind than before."""
    old, new = tmp_path / "model", tmp_path / "staged"
    for folder, names in ((old, ("weights", "generation")), (new, ("weights",))):
        folder.mkdir()
        for name in names:
            (folder / name).write_text(folder.name)
            age(folder / name)
    cache = StatCache(tmp_path / "cache.json")
    digest_path(old, cache=cache)
    digest_path(new, cache=cache)
    shutil.rmtree(old)
    new.rename(old)
    cache.moved(new, old)
    cache.settled(old)
    assert {pathlib.Path(name).name for name in cache.entries} == {"weights"}
    assert digest_path(old, cache=cache) == digest_path(old)


def test_a_file_takes_the_place_of_a_folder_in_a_folder(tmp_path):
    old, new = tmp_path / "model", tmp_path / "staged"
    for inside in (old / "part/weights", new / "part"):
        inside.parent.mkdir(parents=True)
        inside.write_text("weights")
        age(inside)
    cache = StatCache(tmp_path / "cache.json")
    digest_path(old, cache=cache)
    digest_path(new, cache=cache)
    shutil.rmtree(old)
    new.rename(old)
    cache.moved(new, old)
    cache.settled(old)
    assert [pathlib.Path(name).name for name in cache.entries] == ["part"]
    assert digest_path(old, cache=cache) == digest_path(old)


@pytest.mark.parametrize("change", ["size", "mtime", "inode"])
def test_cache_notices(tmp_path, change):
    file = tmp_path / "a"
    file.write_bytes(b"old")
    age(file)
    cache = StatCache(tmp_path / "cache.json")
    digest_path(file, cache=cache)
    if change == "inode":
        (tmp_path / "b").write_bytes(b"new")
        (tmp_path / "b").replace(file)
    else:
        file.write_bytes(b"newer" if change == "size" else b"new")
    age(file, LONG_AGO + (change == "mtime"))
    assert digest_path(file, cache=cache).sha256 == sha(file.read_bytes())


def test_a_file_hashed_right_after_it_was_written_is_not_trusted(tmp_path):
    file = tmp_path / "a"
    file.write_bytes(b"old")
    cache = StatCache(tmp_path / "cache.json")
    digest_path(file, cache=cache)
    assert cache.entries == {}
    # Nor one from the future: the clock went backwards.
    age(file, int(time.time()) + 1000)
    digest_path(file, cache=cache)
    assert cache.entries == {}


@pytest.mark.parametrize(
    "damage", ["", "{", "[]", '{"a": [1]}', '{"a": 3}', '{"a": {"b": 1}}', "\xff"]
)
def test_damaged_cache_is_an_empty_one(tmp_path, damage):
    (tmp_path / "cache.json").write_bytes(damage.encode("latin-1"))
    assert StatCache.load(tmp_path / "cache.json").entries == {}


def test_saving_replaces_the_file_and_leaves_nothing_beside_it(tmp_path):
    cache = StatCache(tmp_path / "deep" / "cache.json", {"x": (1, 2, 3, 4, "d")}, changed=True)
    cache.save()
    assert [path.name for path in cache.path.parent.iterdir()] == ["cache.json"]
    assert StatCache.load(cache.path).entries == cache.entries


def test_what_is_known_of_a_folder_goes_with_it_when_it_is_renamed(tmp_path, monkeypatch):
    staged, final = tmp_path / "staged", tmp_path / "final"
    (staged / "sub").mkdir(parents=True)
    neighbor = tmp_path / "staged2"
    for file in (staged / "a", staged / "sub/b", neighbor):
        file.write_text(file.name)
        age(file)
    cache = StatCache(tmp_path / "cache.json")
    before = digest_path(staged, cache=cache)
    digest_path(neighbor, cache=cache)
    staged.rename(final)
    cache.moved(staged, final)
    assert cache.entries.keys() == {str(final / "a"), str(final / "sub" / "b"), str(neighbor)}
    monkeypatch.setattr("posttrain.stage.hashing.sha256_of_file", lambda _: "read again")
    assert digest_path(final, cache=cache) == before


@pytest.mark.parametrize(
    ("age_ns", "written_ns", "kept"),
    [
        (10_000_000, 5_000_000_123, False),
        (30_000_000, 5_000_000_123, True),
        (30_000_000, 5_001_000_000, False),
        (1_900_000_000, 5_000_000_000, False),
        (2_100_000_000, 5_000_000_000, True),
    ],
)
def test_a_young_file_is_trusted_by_how_fine_its_clock_is(tmp_path, age_ns, written_ns, kept):
    file = tmp_path / "a"
    file.write_text("a")
    os.utime(file, ns=(written_ns, written_ns))
    cache = StatCache(tmp_path / "cache.json")
    cache.put(str(file), file.stat(), "sha", hashed_ns=written_ns + age_ns)
    assert (cache.get(str(file), file.stat()) == "sha") is kept
