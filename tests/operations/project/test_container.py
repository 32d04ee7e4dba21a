"""The Dockerfile, step by step in a bare Debian, and what a project does in what came of it."""

import os
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.operations.project.dockerfile import Image, bare_root, steps

ROOT = Path(__file__).parents[3]
DOCKERFILE = ROOT / "Dockerfile"
_NEEDED = ("debootstrap", "bwrap", "apt-get")


def test_steps_are_read_as_docker_reads_them():
    text = (
        '# said\nFROM debian:x-slim\nRUN a \\\n && b "c"\n\nCOPY one two ./\n  # more\nCMD ["x"]\n'
    )
    assert [tuple(step) for step in steps(text)] == [
        ("FROM", "debian:x-slim"),
        ("RUN", 'a   && b "c"'),
        ("COPY", "one two ./"),
        ("CMD", '["x"]'),
    ]


def test_what_is_copied_is_there_and_is_let_through():
    let_through = {
        line[1:]
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    copied = {
        each
        for step in steps(DOCKERFILE.read_text())
        if step.instruction == "COPY"
        for each in step.text.split()[:-1]
    }
    assert copied == let_through
    assert [each for each in sorted(copied) if not (ROOT / each).exists()] == []
    # Packages that setuptools looks for, and what the build reads.
    found = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = found["tool"]["setuptools"]["packages"]["find"]["include"]
    assert {each.rstrip("*") for each in packages} <= copied
    assert {found["project"]["readme"], "LICENSE", "constraints.txt"} <= copied


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    if os.geteuid() != 0 or not all(map(shutil.which, _NEEDED)):
        pytest.skip(f"a bare root is laid by root, with {', '.join(_NEEDED)}")
    place = tmp_path_factory.mktemp("image")
    subprocess.run(["git", "clone", "-q", ROOT, place / "context"], check=True)
    base = next(step.text for step in steps(DOCKERFILE.read_text()) if step.instruction == "FROM")
    bare_root(base.removeprefix("debian:").removesuffix("-slim"), place / "root")
    made = Image(place / "root", place / "context")
    made.build(DOCKERFILE.read_text())
    yield made
    shutil.rmtree(place)


@pytest.mark.slow  # a Debian, a compiler and all packages: some minutes
@pytest.mark.timeout(1800)
def test_a_bare_debian_becomes_one_that_runs_a_project(image):
    assert "posttrain run" in image.run(*image.entrypoint, *image.command)
    # As a user of the host who has no name in the image.
    image.run("install", "--directory", "--owner", "1234", "/project/mine")
    image.run(*image.entrypoint, "init", "demo", user=1234, folder="/project/mine")
    demo = {"user": 1234, "folder": "/project/mine/demo"}
    assert "policy" in image.run(*image.entrypoint, "run", **demo)
    assert "nothing to run" in image.run(*image.entrypoint, "run", **demo)
