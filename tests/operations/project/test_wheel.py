"""The wheel in an empty environment: `posttrain init`, then the new project's two commands."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]


def _run(*command, cwd):
    # Neither this environment nor this tree may be seen from there.
    hidden = ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME", "MAKEFLAGS", "MAKELEVEL")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel of what git has here, so that nothing that lies around gets into it."""
    place = tmp_path_factory.mktemp("wheel")
    _run("git", "clone", "-q", ROOT, place / "tree", cwd=place)
    pip = (sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", place)
    _run(*pip, place / "tree", cwd=place)
    return next(place.glob("posttrain-*.whl"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """A new environment that has nothing but the wheel and what it needs."""
    place = tmp_path_factory.mktemp("environment")
    _run(sys.executable, "-m", "venv", place / "venv", cwd=place)
    # What is imported gets compiled anyway; the rest would take longer than all else here.
    pip = (place / "venv/bin/python", "-m", "pip", "install", "-q", "--no-compile")
    _run(*pip, "-c", ROOT / "constraints.txt", wheel, cwd=place)
    return place / "venv" / "bin"


def test_the_wheel_carries_every_file_of_the_packages(wheel):
    packed = set(zipfile.ZipFile(wheel).namelist())
    listed = _run(
        "git", "ls-tree", "-r", "--name-only", "HEAD", "posttrain", "tasks", "flows", cwd=ROOT
    ).split()
    assert set(listed) - packed == set()


def test_a_new_project_runs_and_passes_its_tests(installed, tmp_path):
    _run(installed / "posttrain", "init", "demo", cwd=tmp_path)
    demo = tmp_path / "demo"
    assert "policy" in _run("make", "run", cwd=demo)
    assert "nothing to run" in _run("make", "run", cwd=demo)
    assert "3 passed" in _run("make", "test", cwd=demo)
    # What was made is what stock DVC finds.
    assert "up to date" in _run(installed / "python", "-m", "dvc", "status", cwd=demo)
    assert "site-packages" not in (demo / "dvc.yaml").read_text()
    said = _run(installed / "posttrain", "lineage", "up", "data/sft/policy", cwd=demo)
    assert "balance" in said
