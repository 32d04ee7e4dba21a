"""A repository of two stages, for our adapter and for stock DVC."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from posttrain.provenance.dvc import DvcStore, LockEntry

ROOT = Path(__file__).resolve().parents[3]

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
def kit() -> SimpleNamespace:
    """What tests of several files use; they cannot import from each other."""
    return SimpleNamespace(
        root=ROOT,
        entries=ENTRIES,
        params=PARAMS,
        make=MAKE,
        make_repository=make_repository,
        run_stages=run_stages,
        stock=stock,
        outputs=outputs,
        object_path=object_path,
        damage=damage,
    )


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
