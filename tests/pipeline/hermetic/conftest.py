"""A toy project whose stage does one thing that a test gives it."""

import textwrap
from subprocess import CompletedProcess

import pytest

from tests.called import called


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
def here(request, monkeypatch):
    """Let `toy.cli` run in this process: its stages are processes of their own all the same.

    Not where a variable is given, as stages have those with which their fork server began, nor with
    modules of a project whose names another test's project has too.
    """
    if "toy" not in request.fixturenames:
        return
    toy, capture = request.getfixturevalue("toy"), request.getfixturevalue("capfd")
    apart = toy.cli

    def cli(*arguments, env=None):
        if env or (toy.root / "plug").exists():
            return apart(*arguments, env=env)
        with monkeypatch.context() as patch:
            patch.chdir(toy.root)
            said = called(*arguments, patch=patch, capture=capture)
        return CompletedProcess(arguments, said.code, said.out, said.err)

    monkeypatch.setattr(toy, "cli", cli)
