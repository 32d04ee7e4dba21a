"""A scheduled success makes a release candidate, and promotes it only where the recipe says so."""

import subprocess
from pathlib import Path

import pytest

from posttrain.operations.schedule import execute
from posttrain.publishing.release.config import ReleaseConfig
from posttrain.stage.errors import UserError


@pytest.fixture
def released(monkeypatch, declare):
    """Release after a success; the command that was run, and what the history says."""
    asked = []

    def release(promote, *, code=0, error=""):
        def run(command, **_):
            asked.append(command[2:])
            return subprocess.CompletedProcess(command, code, "", error)

        monkeypatch.setattr(execute, "record", lambda *_: None)
        monkeypatch.setattr(execute.subprocess, "run", run)
        said = execute._release(declare(release="policy"), Path(), promote)
        return asked[-1], said

    return release


def test_nothing_promotes_unless_the_recipe_says_so(released):
    create = ["posttrain", "release", "create", "policy", "--recipe", "."]
    assert released(None) == (create, "release candidate policy made")
    command, said = released("staging")
    assert command == [*create, "--environment", "staging"]
    assert said == "release candidate policy made, and promoted to staging as the recipe says"


def test_a_gate_that_fails_is_said_and_promotes_nothing(released):
    _, said = released("prod", code=2, error="error: gate 'better' failed: 0.1 < 0.2\n")
    assert said == "no release candidate: gate 'better' failed: 0.1 < 0.2"


def test_the_recipe_names_a_stage_that_there_is():
    assert ReleaseConfig.parse({}, where="release").promote is None
    assert ReleaseConfig.parse({"promote": "prod"}, where="release").promote == "prod"
    with pytest.raises(UserError, match=r"release.promote"):
        ReleaseConfig.parse({"promote": "production"}, where="release")
