"""Ledgers in every database that is here: SQLite always, PostgreSQL where its programs are."""

import itertools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from posttrain.provenance.ledger import ArtifactRecord, Run, StageRun, open_ledger

_DATABASES = itertools.count()


def _find(program):
    found = shutil.which(program)
    if found:
        return found
    installed = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{program}"))
    return str(installed[-1]) if installed else None


def _unprivileged():
    """PostgreSQL refuses to run as root."""
    if os.getuid() != 0:
        return []
    return ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]


@pytest.fixture(scope="session")
def postgres():
    """URL prefix of a private server on a loopback port, without its database name."""
    initdb, server = _find("initdb"), _find("postgres")
    if not initdb or not server:
        pytest.skip("PostgreSQL is not installed (no initdb or postgres program)")
    pytest.importorskip("psycopg", reason="the psycopg driver is not installed")
    if os.getuid() == 0 and not shutil.which("setpriv"):
        pytest.skip("PostgreSQL refuses to run as root and setpriv is not installed")
    # Not in pytest's folder, which each session of it closes to the user of the server.
    with tempfile.TemporaryDirectory(prefix="posttrain-pg-") as folder:
        if os.getuid() == 0:
            shutil.chown(folder, "nobody", "nogroup")
        yield from _serve(folder, initdb, server)


def _serve(folder, initdb, server):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    run_as = _unprivileged()
    init = [*run_as, initdb, "-D", folder, "-U", "tester", "-A", "trust", "--no-sync"]
    subprocess.run(init, check=True, capture_output=True, cwd="/")
    options = ["-D", folder, "-p", str(port), "-h", "127.0.0.1", "-k", "", "-F"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen([*run_as, server, *options], cwd="/", **quiet)
    prefix = f"postgresql://tester@127.0.0.1:{port}/"
    try:
        _wait(prefix, process)
        yield prefix
    finally:
        # At once: nobody reads it again, so that it need not write what it has in memory.
        process.send_signal(signal.SIGQUIT)
        process.wait(timeout=20)


def _wait(prefix, process):
    import psycopg

    for _ in range(100):
        try:
            psycopg.connect(prefix + "postgres").close()
            return
        except psycopg.OperationalError:
            assert process.poll() is None, "the server ended before it took a connection"
            time.sleep(0.1)
    raise AssertionError("the server did not come up")


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path):
    """An empty place for a ledger."""
    if request.param == "sqlite":
        return str(tmp_path / "ledger.db")
    return _new_database(request.getfixturevalue("postgres"))


@pytest.fixture
def postgres_url(postgres):
    """An empty database on the private server."""
    return _new_database(postgres)


def _new_database(prefix):
    import psycopg

    name = f"ledger{next(_DATABASES)}"
    with psycopg.connect(prefix + "postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return prefix + name


@pytest.fixture
def ledger(url):
    """An open, empty ledger."""
    with open_ledger(url) as opened:
        yield opened


@pytest.fixture(scope="session")
def make():
    """Makers of records."""
    makers = (artifact, stage_run, full_stage_run, full_run)
    return SimpleNamespace(**{maker.__name__: maker for maker in makers})


def artifact(role, digest, **fields):
    """An artifact of 10 bytes at data/<role>."""
    named = {"type": "completions", "path": f"data/{role}.parquet", "size": 10, **fields}
    return ArtifactRecord(role=role, digest=digest, **named)


def stage_run(number, stage="sft", key=None, **fields):
    """The `number`-th stage run; its key is k<number> unless said otherwise."""
    defaults = {"task": f"tasks.{stage}", "status": "succeeded", "started": 10.0, "ended": 12.5}
    identity = {"id": f"s{number}", "run_id": "r1", "stage": stage, "key": key or f"k{number}"}
    return StageRun(**{**identity, **defaults, **fields})


def full_stage_run():
    """A stage run with no field left at its default."""
    return StageRun(
        id="s-full",
        run_id="r-full",
        stage="sft",
        task="tasks.sft",
        key="0f" * 32,
        status="failed",
        started=1_700_000_000.123456,
        ended=1_700_000_001.654321,
        components={"code": {"tasks.sft:run": "ab"}, "params": {"epochs": "2"}, "none": {}},
        timings={"execute": 1.25, "publish": 0.001},
        inputs=(
            artifact("train", "d1", rows=3, producer="curate", md5="m1"),
            artifact("base", "d2", type="checkpoint", md5="m2.dir"),
        ),
        outputs=(artifact("policy", "d3", type="checkpoint", size=2**40),),
        metrics={"loss": 0.1 + 0.2, "steps": 7.0},
        host="box",
        log_path=".posttrain/runs/r/sft.log",
        error="it broke: ünïcode \n second line",
        attempt=3,
        mlflow_run_id="m123",
        circumstances={"processor": "a long name", "torch": "AVX2"},
    )


def full_run():
    """A run with no field left at its default."""
    return Run(
        id="r-full",
        recipe="gsm8k",
        started=1_700_000_000.25,
        command="posttrain run --set rl.lr=1e-4",
        ended=1_700_000_009.5,
        status="failed",
        git_commit="c0ffee",
        git_dirty=True,
        mlflow_run_id="ml",
        prefect_run_id="pr",
        overrides={"rl.lr": "1e-4"},
        actor="Ada <ada@example.org>",
    )
