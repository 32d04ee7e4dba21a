"""What an index would be given: sdist and wheel, and the wheel in an empty environment."""

import os
import subprocess
import sys
import tarfile
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
def built(tmp_path_factory):
    """The sdist of what git has here, so that nothing that lies around gets in, and its wheel."""
    place = tmp_path_factory.mktemp("built")
    _run("git", "clone", "-q", ROOT, place / "tree", cwd=place)
    # Without a choice of one, the wheel is made of the sdist and of nothing beside it.
    _run(sys.executable, "-m", "build", "--outdir", place, place / "tree", cwd=place)
    return place


@pytest.fixture(scope="module")
def wheel(built):
    return next(built.glob("posttrain-*.whl"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """A new environment that has nothing but the wheel and what it needs."""
    place = tmp_path_factory.mktemp("environment")
    _run(sys.executable, "-m", "venv", place / "venv", cwd=place)
    # What is imported gets compiled anyway; the rest would take longer than all else here.
    pip = (place / "venv/bin/python", "-m", "pip", "install", "-q", "--no-compile")
    _run(*pip, "-c", ROOT / "constraints.txt", wheel, cwd=place)
    return place / "venv" / "bin"


def _contents(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_wheel_carries_every_file_of_the_packages_and_no_other(wheel):
    packed = {name for name in _contents(wheel) if ".dist-info/" not in name}
    listed = _run(
        "git", "ls-tree", "-r", "--name-only", "HEAD", "posttrain", "tasks", "flows", cwd=ROOT
    ).split()
    assert packed == set(listed)


def test_a_wheel_of_the_tree_is_the_one_of_the_sdist(built, wheel, tmp_path):
    pip = (sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", tmp_path)
    _run(*pip, built / "tree", cwd=tmp_path)
    assert _contents(tmp_path / wheel.name) == _contents(wheel)
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "README.md", "pyproject.toml"} <= names


def test_an_index_would_take_both(built, wheel):
    archive = next(built.glob("*.tar.gz"))
    said = _run(sys.executable, "-m", "twine", "check", "--strict", archive, wheel, cwd=ROOT)
    assert said.count("PASSED") == 2
    # Its settings are in pyproject.toml, with the reason for each.
    _run(sys.executable, "-m", "check_wheel_contents", wheel, cwd=ROOT)


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


def test_elsewhere_a_project_finds_the_wheel_that_it_carries(installed, wheel, tmp_path):
    _run(installed / "posttrain", "init", "demo", cwd=tmp_path)
    moved = (tmp_path / "demo").rename(tmp_path / "moved")
    assert (moved / "wheels" / wheel.name).read_bytes() == wheel.read_bytes()
    _run(sys.executable, "-m", "venv", "empty", cwd=tmp_path)
    # Nobody has installed posttrain there: what is resolved is what pip would install.
    pip = (tmp_path / "empty/bin/python", "-m", "pip", "install", "--dry-run", "--no-deps")
    said = _run(*pip, "-r", "requirements.txt", "-c", "constraints.txt", cwd=moved)
    assert f"Would install posttrain-{wheel.name.split('-')[1]}" in said
