"""Threads, processes and stock DVC at one repository at the same time, and kills."""

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
from typing import Any

import pytest

from posttrain.provenance.dvc import DvcStore

ROOT = Path(__file__).resolve().parents[3]


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
from posttrain.provenance.dvc import DvcStore, LockEntry
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


@pytest.mark.slow
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
from posttrain.provenance.dvc import DvcStore, LockEntry
root = Path(sys.argv[1])
store = DvcStore(root, root)
store.cache
print("ready", flush=True)
while True:
    store.store([root / "data/make/table.parquet", root / "data/make/model"])
    for cmd in ("first", "second"):
        store.write_lock([LockEntry("make", cmd, (), {}, ("data/make/table.parquet",))])
    for path in (root / ".dvc/cache/files/md5").glob("??/*"):
        path.unlink()
"""


@pytest.mark.slow
def test_a_kill_while_storing_leaves_only_whole_objects_and_a_whole_lock(
    kit: Any, folder: Path
) -> None:
    kit.run_stages(folder)
    noise = random.Random(0)
    for index in range(4):
        (folder / f"data/make/model/{index}").write_bytes(noise.randbytes(4_000_000))
    model_files = {path for path in (folder / "data/make/model").rglob("*") if path.is_file()}
    locks = set()
    for _ in range(4):
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
    store.store(kit.outputs(folder))
    store.write_lock(kit.entries)
    shutil.rmtree(folder / "data/make/model")
    kit.stock(folder, "checkout", "-q")
    assert all(path.is_file() for path in model_files)
    assert kit.stock(folder, "status") == "Data and pipelines are up to date."


@pytest.mark.slow
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
