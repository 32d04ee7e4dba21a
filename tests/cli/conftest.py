"""`posttrain` in a project, in this process or in one of its own, and what it leaves behind."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from posttrain.cli.main import main

ROOT = Path(__file__).parents[2]
# What a run may always leave: its records, DVC's own folders, compiled modules.
_REMEMBERED = {".git", ".posttrain", ".dvc", "__pycache__"}


@dataclass(frozen=True)
class Said:
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str

    @property
    def sentence(self):
        """The one line of an error; what else was said is about stages that ran or failed."""
        (line,) = (line for line in self.err.splitlines() if line.startswith("error: "))
        assert "Traceback" not in self.err
        return line.removeprefix("error: ")


@pytest.fixture
def posttrain(toy, monkeypatch, capfd) -> Callable[..., Said]:
    """Call the command line's own entry point in the toy project, without MLflow.

    In this process, so that the fork server's imports are paid once and not once a test.
    """
    monkeypatch.chdir(toy.root)
    monkeypatch.setenv("POSTTRAIN_TRACKING", "off")

    def call(*arguments):
        monkeypatch.setattr("sys.argv", ["posttrain", *arguments])
        capfd.readouterr()
        code = 0
        try:
            main()
        except SystemExit as stopped:
            code = stopped.code
        return Said(code, *capfd.readouterr())

    return call


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
