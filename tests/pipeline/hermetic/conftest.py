"""A toy project whose stage does one thing that a test gives it."""

import textwrap
from subprocess import CompletedProcess

import pytest

from tests.called import called

_ITS_OWN = ("PYTHON", "TZ", "LC_", "LANG", "HOME")
"""Variables that decide what a process is when it starts."""


@pytest.fixture(autouse=True)
def untracked(monkeypatch):
    """Start no process of MLflow's for each of the many runs: it takes more time than they do."""
    monkeypatch.setenv("POSTTRAIN_TRACKING", "off")


@pytest.fixture(params=["held", pytest.param("observed", marks=pytest.mark.slow)])
def isolation(request, monkeypatch):
    """Both ways of keeping a stage to its key: by the kernel, and by what Python hears."""
    if request.param == "observed":
        monkeypatch.setenv("POSTTRAIN_ISOLATION", "observed")
    return request.param


@pytest.fixture
def doing(toy, edit):
    """Let the stages of the toy project do something first, and run them from the command line."""

    def change(body, recipe=""):
        stage = toy.root / toy.package / "stage.py"
        code = textwrap.indent(textwrap.dedent(body).strip(), "    ")
        edit(stage, "    # a comment\n", f"{code}\n")
        toy.recipe(recipe)
        return toy

    return change


@pytest.fixture
def here(toy, monkeypatch, capfd):
    """Let `toy.cli` run in this process: its stages are processes of their own all the same.

    Not where a variable has to be there when a process starts, nor with modules of a project whose
    names another test's project has too.
    """
    apart = toy.cli

    def cli(*arguments, env=None):
        if any(name.startswith(_ITS_OWN) for name in env or ()) or (toy.root / "plug").exists():
            return apart(*arguments, env=env)
        with monkeypatch.context() as patch:
            for name, value in (env or {}).items():
                patch.setenv(name, value)
            said = called(*arguments, cwd=toy.root, patch=patch, capture=capfd)
        return CompletedProcess(arguments, said.code, said.out, said.err)

    monkeypatch.setattr(toy, "cli", cli)
