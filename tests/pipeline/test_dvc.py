"""The adapter against stock DVC: what we write, `dvc` must call clean, reproduce and check out."""

import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from hashlib import md5
from pathlib import Path

import pytest

from posttrain.errors import UserError
from posttrain.pipeline.dvc import DvcStore, LockEntry, StoredObject

ROOT = Path(__file__).resolve().parents[2]

DVC_YAML = """
stages:
  make:
    cmd: python make.py
    deps: [make.py, source]
    params: [make.rate, make.tiny, make.names, make.none, make.word, make.flag]
    outs: [data/make/table.parquet, data/make/model]
  read:
    cmd: python read.py
    deps: [data/make/table.parquet, data/make/model]
    params: [read.steps]
    outs: [data/read/report.json]
"""
PARAMS = """
make:
  rate: 0.003
  tiny: 1e-05
  names: [a, b]
  none:
  word: 'yes'
  flag: true
read:
  steps: 3
"""
MAKE = """
from pathlib import Path
Path("data/make/model/sub").mkdir(parents=True)
Path("data/make/table.parquet").write_bytes(bytes(range(256)))
Path("data/make/model/weights").write_text("w" * 1000)
Path("data/make/model/sub/empty").write_text("")
"""
READ = """
from pathlib import Path
Path("data/read").mkdir(parents=True)
Path("data/read/report.json").write_text("{}")
"""
ENTRIES = [
    LockEntry(
        name="make",
        cmd="python make.py",
        deps=("source", "make.py"),
        params={
            "make.rate": 0.003,
            "make.tiny": 1e-05,
            "make.names": ["a", "b"],
            "make.none": None,
            "make.word": "yes",
            "make.flag": True,
        },
        outs=("data/make/table.parquet", "data/make/model"),
    ),
    LockEntry(
        name="read",
        cmd="python read.py",
        deps=("data/make/table.parquet", "data/make/model"),
        params={"read.steps": 3},
        outs=("data/read/report.json",),
    ),
]


def make_repository(root: Path, recipe: str = ".") -> Path:
    """A git repository with DVC's folder; DVC's memory of hashes stays inside it too."""
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    (root / ".dvc").mkdir()
    shutil.copy(ROOT / ".dvc" / "config", root / ".dvc" / "config")
    shutil.copy(ROOT / ".dvc" / ".gitignore", root / ".dvc" / ".gitignore")
    site = f"[core]\n    site_cache_dir = {root / '.dvc' / 'tmp' / 'site'}\n"
    (root / ".dvc" / "config.local").write_text(site)
    folder = root / recipe
    (folder / "source").mkdir(parents=True)
    (folder / "source" / "problems.jsonl").write_text('{"prompt": "1+1"}\n')
    (folder / "data").mkdir()
    (folder / "data" / ".gitignore").write_text("/*/\n")
    texts = {"dvc.yaml": DVC_YAML, "params.yaml": PARAMS, "make.py": MAKE, "read.py": READ}
    for name, text in texts.items():
        (folder / name).write_text(text)
    return folder


def run_stages(folder: Path) -> None:
    for script in ("make.py", "read.py"):
        subprocess.run([sys.executable, script], cwd=folder, check=True)


def stock(folder: Path, *words: str) -> str:
    """Run stock dvc; return what it says."""
    done = subprocess.run(
        [sys.executable, "-m", "dvc", *words], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def outputs(folder: Path) -> list[Path]:
    return [folder / out for entry in ENTRIES for out in entry.outs]


def object_path(root: Path, oid: str) -> Path:
    return root / ".dvc" / "cache" / "files" / "md5" / oid[:2] / oid[2:]


def damage(path: Path) -> None:
    """Flip the bytes without changing size, mode or mtime: DVC itself cannot see it."""
    before = path.stat()
    path.chmod(0o644)
    path.write_bytes(bytes(byte ^ 255 for byte in path.read_bytes()) or b"x")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    path.chmod(0o444)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_repository(tmp_path)


@pytest.fixture
def stored(folder: Path) -> DvcStore:
    """A repository whose stages ran and whose outputs are in the cache and in the lock file."""
    run_stages(folder)
    store = DvcStore(folder, folder)
    store.store(outputs(folder))
    store.write_lock(ENTRIES)
    return store


def test_the_lock_file_is_byte_for_byte_what_stock_dvc_writes(folder: Path) -> None:
    stock(folder, "repro", "-q")
    theirs = (folder / "dvc.lock").read_bytes()
    (folder / "dvc.lock").unlink()
    assert DvcStore(folder, folder).write_lock(ENTRIES)
    assert (folder / "dvc.lock").read_bytes() == theirs


@pytest.mark.parametrize("recipe", [".", "recipes/other"])
def test_stock_dvc_finds_our_run_clean_and_can_check_it_out(tmp_path: Path, recipe: str) -> None:
    folder = make_repository(tmp_path, recipe)
    run_stages(folder)
    store = DvcStore(tmp_path, folder)
    store.store(outputs(folder))
    store.write_lock(ENTRIES)
    before = {path: path.read_bytes() for path in (folder / "data").rglob("*") if path.is_file()}
    assert store.status() == []
    assert stock(folder, "status") == "Data and pipelines are up to date."
    told = stock(folder, "repro")
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
    stock(folder, "checkout", "-q")
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


def test_status_names_what_changed(folder: Path, stored: DvcStore) -> None:
    (folder / "make.py").write_text(MAKE + "# edited\n")
    (folder / "params.yaml").write_text(PARAMS.replace("steps: 3", "steps: 4"))
    assert stored.status() == [
        "make: changed deps: make.py modified",
        "read: changed deps: params.yaml {'read.steps': 'modified'}",
    ]


def test_other_entries_stay_as_they_are(folder: Path, stored: DvcStore) -> None:
    lock = folder / "dvc.lock"
    before = lock.read_text()
    assert not stored.write_lock(ENTRIES)
    (folder / "data/read/report.json").write_text('{"changed": 1}')
    assert stored.write_lock(ENTRIES[1:])
    after = lock.read_text()
    head, _, tail = before.partition("  read:\n")
    assert after.startswith(head)
    assert not after.endswith(tail)
    assert md5(b'{"changed": 1}').hexdigest() in after


def test_entries_of_stages_that_are_gone_are_dropped(folder: Path, stored: DvcStore) -> None:
    assert stored.write_lock([], keep=["make"])
    assert "  make:\n" in (folder / "dvc.lock").read_text()
    assert "  read:\n" not in (folder / "dvc.lock").read_text()


def test_known_facts_are_believed_and_files_not_read(folder: Path, stored: DvcStore) -> None:
    fact = StoredObject("0" * 31 + "1", 7)
    stored.write_lock(ENTRIES[1:], known={folder / "data/read/report.json": fact})
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


def test_store_describes_as_dvc_does(folder: Path) -> None:
    run_stages(folder)
    facts = DvcStore(folder, folder).store(outputs(folder))
    table, model, _ = (facts[out] for out in outputs(folder))
    assert table == StoredObject(md5(bytes(range(256))).hexdigest(), 256)
    listing = (
        f'[{{"md5": "{md5(b"").hexdigest()}", "relpath": "sub/empty"}}, '
        f'{{"md5": "{md5(b"w" * 1000).hexdigest()}", "relpath": "weights"}}]'
    )
    assert model == StoredObject(md5(listing.encode()).hexdigest() + ".dir", 1000, num_files=2)


def test_restore_brings_back_files_and_directories(folder: Path, stored: DvcStore) -> None:
    facts = {out: stored.describe(out) for out in outputs(folder)}
    for name in ("make", "read"):
        shutil.rmtree(folder / "data" / name)
    (folder / "data/make/model").mkdir(parents=True)
    (folder / "data/make/model/stale").write_text("from another version")
    assert all(stored.restore(out, fact.md5) for out, fact in facts.items())
    assert stored.status() == []
    assert not (folder / "data/make/model/stale").exists()
    assert not list(folder.glob("data/**/*.tmp"))
    (folder / "data/make/table.parquet").write_text("ours to change")


def test_what_is_nowhere_is_not_restored(folder: Path, stored: DvcStore) -> None:
    assert not stored.has("f" * 32)
    assert not stored.restore(folder / "data/make/other", "f" * 32)
    assert not (folder / "data/make/other").exists()


def test_a_directory_is_there_only_with_all_its_files(folder: Path, stored: DvcStore) -> None:
    model = stored.describe(folder / "data/make/model").md5
    assert stored.has(model)
    object_path(folder, md5(b"w" * 1000).hexdigest()).unlink()
    assert not stored.has(model)
    assert not stored.restore(folder / "data/make/model", model)


@pytest.mark.parametrize("what", ["file", "member", "listing"])
def test_a_damaged_object_is_named_and_never_used(
    folder: Path, stored: DvcStore, what: str
) -> None:
    out = folder / ("data/make/table.parquet" if what == "file" else "data/make/model")
    oid = stored.describe(out).md5
    victim = object_path(folder, md5(b"w" * 1000).hexdigest() if what == "member" else oid)
    damage(victim)
    shutil.rmtree(folder / "data/make")
    with pytest.raises(UserError) as caught:
        stored.restore(out, oid)
    assert str(victim) in str(caught.value)
    assert "run again" in str(caught.value)
    assert not out.exists()
    assert not stored.has(oid)


def test_storing_the_same_bytes_again_heals_a_damaged_object(
    folder: Path, stored: DvcStore
) -> None:
    table = folder / "data/make/table.parquet"
    oid = stored.describe(table).md5
    damage(object_path(folder, oid))
    stored.store([table])
    assert object_path(folder, oid).read_bytes() == bytes(range(256))
    table.unlink()
    assert stored.restore(table, oid)


def test_a_damaged_object_is_fetched_again_from_a_remote(
    folder: Path, stored: DvcStore, tmp_path_factory: pytest.TempPathFactory
) -> None:
    remote = tmp_path_factory.mktemp("remote")
    stock(folder, "remote", "add", "-d", "-q", "store", str(remote))
    stock(folder, "push", "-q")
    model = folder / "data/make/model"
    oid = stored.describe(model).md5
    damage(object_path(folder, md5(b"w" * 1000).hexdigest()))
    shutil.rmtree(model)
    fresh = DvcStore(folder, folder)
    assert fresh.restore(model, oid)
    assert (model / "weights").read_text() == "w" * 1000
    assert fresh.status() == []


@pytest.mark.parametrize("link", ["hardlink", "symlink"])
def test_links_are_used_where_the_cache_asks_for_them(folder: Path, link: str) -> None:
    with (folder / ".dvc/config.local").open("a") as config:
        config.write(f"[cache]\n    type = {link}\n")
    run_stages(folder)
    store = DvcStore(folder, folder)
    facts = store.store(outputs(folder))
    store.write_lock(ENTRIES)
    table = folder / "data/make/table.parquet"
    oid = facts[table].md5
    # A hard link saves the second copy at once; a symbolic one appears when DVC checks out.
    assert table.samefile(object_path(folder, oid)) == (link == "hardlink")
    shutil.rmtree(folder / "data/make")
    assert all(store.restore(out, fact.md5) for out, fact in facts.items())
    assert table.samefile(object_path(folder, oid))
    assert store.status() == []


def test_a_cache_that_cannot_be_written_is_a_sentence(folder: Path) -> None:
    run_stages(folder)
    with (folder / ".dvc/config.local").open("a") as config:
        config.write("[cache]\n    dir = /sys/posttrain-cache\n")
    with pytest.raises(UserError, match="cannot write the DVC cache .*/sys/posttrain-cache"):
        DvcStore(folder, folder).store(outputs(folder))


def test_a_full_disk_is_a_sentence_and_leaves_no_object(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_stages(folder)

    def full(_source: str, target: str, **_options: object) -> None:
        Path(target).write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    store = DvcStore(folder, folder)
    store.warm()
    monkeypatch.setattr("dvc_objects.fs.local.copyfile", full)
    with pytest.raises(UserError, match="no space left; free some"):
        store.store(outputs(folder)[:1])
    assert not store.has(md5(bytes(range(256))).hexdigest())


def test_a_missing_repository_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no .dvc folder"):
        DvcStore(tmp_path, tmp_path).warm()
    (tmp_path / ".dvc").mkdir()
    with pytest.raises(UserError, match="git init"):
        DvcStore(tmp_path, tmp_path).warm()


def test_threads_share_one_store(folder: Path) -> None:
    store = DvcStore(folder, folder)
    paths = []
    for index in range(40):
        path = folder / f"data/t{index}/out"
        path.parent.mkdir()
        path.write_text(f"{index % 10}")
        paths.append(path)
    with ThreadPoolExecutor(8) as pool:
        facts = list(pool.map(lambda path: store.store([path])[path], paths))
    assert [fact.md5 for fact in facts] == [
        md5(f"{index % 10}".encode()).hexdigest() for index in range(40)
    ]
    assert all(store.has(fact.md5) for fact in facts)


WORKER = """
import sys
from pathlib import Path
from posttrain.pipeline.dvc import DvcStore, LockEntry
root, name = Path(sys.argv[1]), sys.argv[2]
store = DvcStore(root, root)
for round in range(3):
    for index in range(5):
        out = root / "data" / f"{name}{index}" / "out"
        out.parent.mkdir(exist_ok=True)
        out.write_text(f"the same for all {index}")
        store.store([out])
        entry = LockEntry(f"{name}{index}", "true", (), {}, (f"data/{name}{index}/out",))
        store.write_lock([entry])
"""


def start(script: str, *words: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, "-c", script, *words],
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_processes_store_and_lock_at_the_same_time(folder: Path) -> None:
    names = [f"{who}{index}" for who in "abc" for index in range(5)]
    stages = [f"  {name}:\n    cmd: 'true'\n    outs: [data/{name}/out]\n" for name in names]
    (folder / "dvc.yaml").write_text("stages:\n" + "".join(stages))
    workers = [start(WORKER, str(folder), who) for who in "abc"]
    for worker in workers:
        _, complaint = worker.communicate(timeout=60)
        assert worker.returncode == 0, complaint
    assert DvcStore(folder, folder).status() == []
    assert (folder / "dvc.lock").read_text().count("    cmd: 'true'\n") == 15


STORER = """
import sys
from pathlib import Path
from posttrain.pipeline.dvc import DvcStore, LockEntry
root = Path(sys.argv[1])
store = DvcStore(root, root)
store.warm()
print("ready", flush=True)
while True:
    store.store([root / "data/make/table.parquet", root / "data/make/model"])
    for cmd in ("first", "second"):
        store.write_lock([LockEntry("make", cmd, (), {}, ("data/make/table.parquet",))])
    for path in (root / ".dvc/cache/files/md5").glob("??/*"):
        path.unlink()
"""


def test_a_kill_while_storing_leaves_only_whole_objects_and_a_whole_lock(folder: Path) -> None:
    run_stages(folder)
    noise = random.Random(0)
    for index in range(4):
        (folder / f"data/make/model/{index}").write_bytes(noise.randbytes(4_000_000))
    model_files = {path for path in (folder / "data/make/model").rglob("*") if path.is_file()}
    locks = set()
    for _ in range(6):
        storer = start(STORER, str(folder))
        assert storer.stdout is not None
        assert storer.stdout.readline() == "ready\n"
        time.sleep(noise.uniform(0.0, 0.4))
        storer.send_signal(signal.SIGKILL)
        storer.communicate()
        for path in (folder / ".dvc/cache/files/md5").glob("??/*"):
            if not path.name.endswith(".tmp"):
                digest = md5(path.read_bytes()).hexdigest()
                assert path.parent.name + path.name.removesuffix(".dir") == digest
        if (folder / "dvc.lock").exists():
            locks.add((folder / "dvc.lock").read_text().split("\n")[3].strip())
    assert locks <= {"cmd: first", "cmd: second"}
    store = DvcStore(folder, folder)
    store.store(outputs(folder))
    store.write_lock(ENTRIES)
    shutil.rmtree(folder / "data/make/model")
    stock(folder, "checkout", "-q")
    assert all(path.is_file() for path in model_files)
    assert stock(folder, "status") == "Data and pipelines are up to date."


def test_the_lock_of_a_running_dvc_is_waited_for(folder: Path, stored: DvcStore) -> None:
    from dvc.repo import Repo

    with Repo(str(folder)) as repo:
        repo.lock.lock()
        done = threading.Event()

        def write() -> None:
            stored.write_lock([], keep=[])
            done.set()

        writer = threading.Thread(target=write)
        writer.start()
        assert not done.wait(1.0)
        repo.lock.unlock()
        writer.join(10)
    assert done.is_set()


def test_importing_the_adapter_does_not_import_dvc() -> None:
    script = "import sys, posttrain.pipeline.dvc; sys.exit('dvc' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], cwd=ROOT).returncode == 0
