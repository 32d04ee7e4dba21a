"""A release lists the plug-ins that its stages ran with, each with its digest."""

import sys

import pytest

from posttrain.provenance.ledger import StageRun
from posttrain.publishing.release.canonical import sha256_of
from posttrain.publishing.release.plugins import used_plugins

PART = """
from typing import Literal
from posttrain.stage.shapes.base import ScheduleShape
def half(x):
    return x / 2
class Late(ScheduleShape):
    kind: Literal["late"] = "late"
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "released_turns.py").write_text(PART)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("released_turns", None)


def run(stage, code, packages=None):
    components = {"code": code, "packages": packages or {}}
    return StageRun("i", "r", stage, "tasks.rl", "k", "succeeded", 0.0, 1.0, components=components)


def test_plugins_are_listed_with_the_digest_of_their_code(module):
    ours = {"posttrain.stage.shapes.linear:Linear": "a", "tasks.rl.stage:run": "b"}
    late = {"released_turns:Late": "c", "released_turns:half": "d"}
    runs = [run("sft", ours), run("rl", ours | late), run("again", late)]
    assert used_plugins(runs) == [
        {
            "slot": "schedule",
            "kind": "late",
            "class": "released_turns:Late",
            "stages": ["rl", "again"],
            "packages": {},
            "sha256": sha256_of(late),
        }
    ]
    assert used_plugins(runs[:1]) == []
