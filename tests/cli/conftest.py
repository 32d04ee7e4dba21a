"""`posttrain` in a project, in this process or in one of its own, and what it leaves behind."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.called import Said, called

ROOT = Path(__file__).parents[2]
# What a run may always leave: its records, DVC's own folders, compiled modules.
_REMEMBERED = {".git", ".posttrain", ".dvc", "__pycache__"}


@pytest.fixture
def posttrain(toy, monkeypatch, capfd) -> Callable[..., Said]:
    """Call the command line's own entry point in the toy project, without MLflow."""
    monkeypatch.chdir(toy.root)
    monkeypatch.setenv("POSTTRAIN_TRACKING", "off")
    return partial(called, patch=monkeypatch, capture=capfd)


@pytest.fixture
def contents(toy) -> Callable[[], dict[str, bytes]]:
    """Every file of the project but what remembers runs, by its path."""

    def read():
        found = {}
        for folder, names, files in os.walk(toy.root):
            names[:] = sorted(set(names) - _REMEMBERED)
            for name in files:
                path = Path(folder, name)
                found[str(path.relative_to(toy.root))] = path.read_bytes()
        return found

    return read


@pytest.fixture
def real_tasks(toy):
    """Let the toy project's flows use the real tasks; the flow `FLOW` of a test is theirs."""
    (toy.root / "tasks").symlink_to(ROOT / "tasks")

    def flow(body, recipe):
        name = toy.flow.replace("chain", "real")
        toy.write(f"{name.replace('.', '/')}.py", body)
        toy.recipe(f"flow: {name}\nrun: {{threads: 1, retries: 0}}\n{recipe}")

    return flow
