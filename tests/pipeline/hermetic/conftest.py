"""A toy project whose stage does one thing that a test gives it."""

import textwrap

import pytest


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
