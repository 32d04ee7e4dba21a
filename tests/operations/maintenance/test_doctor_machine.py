"""`posttrain doctor` on installation, GPU, disk, clock and git, each with a fault put in."""

import importlib.metadata
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from posttrain.operations.maintenance.checks import (
    clock,
    gpu,
    installation,
    ledger,
    machine,
    servers,
)
from posttrain.operations.maintenance.checks.finding import CheckScope, Finding
from posttrain.provenance.ledger import ArtifactRecord, Run, StageRun, open_ledger
from posttrain.publishing.release.environment import environment_lock
from posttrain.stage.errors import UserError

GB = 10**9
NOWHERE = CheckScope(None)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A project without a run, under git."""
    monkeypatch.delenv("POSTTRAIN_LEDGER", raising=False)
    (tmp_path / ".dvc").mkdir()
    (tmp_path / ".posttrain").mkdir()
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    return CheckScope(tmp_path)


@pytest.fixture
def ran(place):
    """Let the ledger say that a run ended at `when` and made an artifact of `size` bytes."""

    def record(*, when, size=1):
        out = ArtifactRecord("result", "report", "data/x", "d" * 64, size)
        with open_ledger(place.state / "ledger.db") as ledger:
            ledger.begin_run(Run("r1", "mine", when))
            ledger.record(
                StageRun("s1", "r1", "make", "t", "k" * 64, "succeeded", when, when, outputs=(out,))
            )
            ledger.finish_run("r1", "succeeded", when)

    return record


def the(findings) -> Finding:
    (finding,) = findings
    return finding


def test_a_complaint_without_a_remedy_cannot_be_made():
    with pytest.raises(AssertionError):
        Finding("disk", "warning", "it is full")


def test_this_python_and_these_packages_are_well():
    assert the(installation.python(NOWHERE)).state == "ok"
    assert the(installation.packages(NOWHERE)).state == "ok"


def test_an_old_python(monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 10, 4))
    found = the(installation.python(NOWHERE))
    assert (found.state, found.remedy) == ("broken", "use Python 3.11 or newer")


@pytest.fixture
def installed(monkeypatch):
    """Let packages have other versions, or be gone (None)."""
    real = importlib.metadata.version

    def pretend(**other):
        def version(name):
            if name in other and other[name] is None:
                raise importlib.metadata.PackageNotFoundError(name)
            return other.get(name) or real(name)

        monkeypatch.setattr(importlib.metadata, "version", version)

    return pretend


def test_a_package_that_is_missing_and_one_that_is_too_old(installed, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    installed(polars=None, click="7.0")
    found = the(installation.packages(NOWHERE))
    assert found.state == "broken"
    assert "polars is not installed; click is 7.0, >=8.2 is needed" in found.says
    assert found.remedy.endswith("-m pip install posttrain")


def test_versions_that_nobody_tested(place, installed, monkeypatch):
    monkeypatch.chdir(place.project)
    (place.project / "constraints.txt").write_text("# tested\nclick==8.2.1\nabsent==1.0\n")
    installed(click="8.2.1+local")
    assert the(installation.versions(place)).says == "1 packages as in constraints.txt"
    installed(click="8.9")
    found = the(installation.versions(place))
    assert (found.state, found.says) == ("warning", "click is 8.9, tested with 8.2.1")
    assert "-c constraints.txt posttrain" in found.remedy


def test_commands_of_another_environment(monkeypatch, tmp_path):
    (tmp_path / "python").write_text("#!/bin/sh\n")
    (tmp_path / "python").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    git, path = installation.commands(NOWHERE)
    assert (git.state, git.remedy) == ("broken", "install git")
    assert (path.state, path.says) == (
        "warning",
        "python and dvc of this environment not on PATH",
    )
    assert "bin/activate" in path.remedy


def test_extras_that_are_not_there_have_their_line(installed, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    names = {"s3": "dvc-s3", "postgres": "psycopg", "release": "click", "lora": "peft"}
    lines = [f'{names.get(name, name)}>=1; extra == "{name}"' for name in installation.EXTRAS]
    monkeypatch.setattr(importlib.metadata, "requires", lambda _: lines)
    installed(ray=None, vllm=None, peft=None, psycopg="0.5", **{"dvc-s3": None})
    *others, there = installation.extras(NOWHERE)
    found = {each.says.split()[1 if each.state == "ok" else 0].rstrip(":"): each for each in others}
    assert {name: each.state for name, each in found.items()} == {
        "s3": "ok",
        "postgres": "warning",
        "lora": "ok",
        "ray": "ok",
        "vllm": "ok",
        "quantized": "ok",
    }
    assert found["postgres"].says == "postgres: psycopg is 0.5, >=1 is needed"
    assert "posttrain[postgres]'" in found["postgres"].remedy
    assert "posttrain[ray]'" in found["ray"].says
    assert "uv pip install --editable '.[vllm]' in a clone" in found["vllm"].says
    assert there.says == "with release"


def free(monkeypatch, *, room, files=10**6):
    status = SimpleNamespace(
        f_bavail=room // 4096, f_frsize=4096, f_files=10**7, f_favail=files
    )  # fmt: skip
    monkeypatch.setattr(os, "statvfs", lambda _: status)


@pytest.mark.parametrize(
    ("room", "made", "state"),
    [
        (50 * GB, 10 * GB, "ok"),
        (50 * GB, 30 * GB, "warning"),
        (GB, 1, "warning"),
        (GB // 10, 1, "broken"),
    ],
)
def test_room_for_one_more_run(place, ran, monkeypatch, room, made, state):
    ran(when=time.time(), size=made)
    free(monkeypatch, room=room)
    found = the(machine.disk(place))
    assert found.state == state
    assert "free where the project is; the last whole run of mine made" in found.says
    assert ("posttrain gc --dry-run" in found.remedy) == (state != "ok")


def test_a_disk_that_takes_no_more_files(place, monkeypatch):
    free(monkeypatch, room=50 * GB, files=12)
    found = the(machine.disk(place))
    assert (found.state, found.says) == (
        "warning",
        "room for 12 more files only where the project is",
    )


def test_the_file_system_of_the_state_is_looked_at_first_where_it_is_another(place, monkeypatch):
    real, state = os.statvfs, Path.stat
    full = SimpleNamespace(f_bavail=0, f_frsize=4096, f_files=10**7, f_favail=10**6)
    monkeypatch.setattr(os, "statvfs", lambda at: full if at == place.state else real(at))

    def elsewhere(at, **more):
        return SimpleNamespace(st_dev=-1) if at == place.state else state(at, **more)

    monkeypatch.setattr(Path, "stat", elsewhere)
    first, *_ = machine.disk(place)
    assert (first.state, first.says) == ("broken", "0 B free where .posttrain is")
    assert first.remedy.startswith("make room on the file system of .posttrain")


def test_a_ledger_on_a_full_disk_is_not_to_be_restored(place, monkeypatch):
    (place.state / "ledger.db").write_bytes(b"")
    (place.state / "schedules.db").write_bytes(b"not sqlite at all" * 100)

    def refuse(*_, **__):
        raise UserError("the ledger cannot be used: disk I/O error")

    monkeypatch.setattr(ledger, "open_store", refuse)
    assert "restore a copy" in the(ledger.ledger(place)).remedy
    free(monkeypatch, room=0)
    assert the(ledger.ledger(place)).remedy.startswith("make room on its file system")
    assert the(servers.databases(place)).remedy.startswith("make room on its file system")


def test_how_stages_are_held_is_said_in_the_words_of_the_docs(monkeypatch):
    monkeypatch.setenv("POSTTRAIN_ISOLATION", "observed")
    since = "files are held since Linux 5.13, TCP since 6.7"
    assert since in the(machine.stages(NOWHERE)).remedy
    docs = Path(__file__).parents[3] / "docs"
    assert since in (docs / "extending.md").read_text(encoding="utf-8")


def test_a_clock_that_went_back(place, ran):
    assert the(clock.clock(place)).state == "ok"
    ran(when=time.time() + 3600)
    found = the(clock.clock(place))
    assert found.state == "broken"
    assert "went back: the ledger's last record is 1 h 0 min from now" in found.says
    assert "timedatectl" in found.remedy


def test_git_without_identity_or_commit(place, monkeypatch, tmp_path):
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", os.devnull)
    assert "no commit yet" in the(machine.git(place)).says
    identity = ["-c", "user.name=t", "-c", "user.email=t@t"]
    commit = ["git", *identity, "commit", "-q", "--allow-empty", "-m", "x"]
    subprocess.run(commit, cwd=place.project, check=True)
    found = the(machine.git(place))
    assert (found.state, found.says) == ("warning", "user.name and user.email not set")
    bare = tmp_path / "bare" / "inside"
    bare.mkdir(parents=True)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(bare.parent))
    assert the(machine.git(CheckScope(bare))).remedy == "git init there"


@pytest.fixture
def driver(tmp_path, monkeypatch):
    """Put an `nvidia-smi` on PATH that says this."""

    def pretend(says, code=0):
        program = tmp_path / "nvidia-smi"
        program.write_text(f"#!/bin/sh\necho '{says}'\nexit {code}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    return pretend


def test_no_gpu(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    found = the(gpu.gpu(NOWHERE))
    assert found.state == "ok"
    assert "no NVIDIA driver here; stages run on the CPU (torch " in found.says


def test_a_gpu_that_this_torch_is_not_built_for(driver, monkeypatch):
    import torch

    monkeypatch.setattr(torch.version, "cuda", None)
    driver("NVIDIA H100, 570.1, 1000, 81559")
    memory, built = gpu.gpu(NOWHERE)
    assert (memory.state, memory.says) == (
        "warning",
        "NVIDIA H100, driver 570.1, 1 GB of 85.5 GB free",
    )
    assert (built.state, "is built without CUDA" in built.says) == ("warning", True)
    assert "built for CUDA: see pytorch.org" in built.remedy
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    driver("NVIDIA H100, 570.1, 81000, 81559")

    def no_code(*_, device):
        raise RuntimeError("CUDA error: no kernel image is available\nCUDA kernel errors might")

    monkeypatch.setattr(torch, "ones", no_code)
    memory, built = gpu.gpu(NOWHERE)
    assert memory.state == "ok"
    assert built.says.endswith(
        "(CUDA 13.0) cannot use it: CUDA error: no kernel image is available"
    )
    assert "for driver 570.1" in built.remedy


def test_a_driver_that_fails(driver):
    driver("Failed to initialize NVML: Driver/library version mismatch", code=18)
    found = the(gpu.gpu(NOWHERE))
    assert found.state == "warning"
    assert "Driver/library version mismatch" in found.says


def test_whether_stages_are_held_is_said(monkeypatch):
    monkeypatch.setenv("POSTTRAIN_ISOLATION", "observed")
    found = the(machine.stages(NOWHERE))
    assert (found.state, found.says.partition(":")[0]) == ("warning", "observed")
    assert environment_lock()["isolation"] == "observed"
    monkeypatch.delenv("POSTTRAIN_ISOLATION")
    monkeypatch.setattr("posttrain.pipeline.hermetic.landlock.abi", lambda: 4)
    assert the(machine.stages(NOWHERE)).state == "ok"
