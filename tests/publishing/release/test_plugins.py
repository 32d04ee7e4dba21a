"""A release lists the plug-ins that its stages ran with, each with its digest."""

import sys

import pytest

from posttrain.provenance.ledger import StageRun
from posttrain.publishing.release.inputs import used_plugins
from posttrain.stage.hashing import sha256_of_json

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


def test_a_plugin_among_the_tasks_of_a_project_is_listed(tmp_path, monkeypatch):
    import tasks

    (tmp_path / "balance").mkdir()
    (tmp_path / "balance" / "turns.py").write_text(PART)
    monkeypatch.setattr(tasks, "__path__", [str(tmp_path), *tasks.__path__])
    name = "tasks.balance.turns"
    late = {f"{name}:Late": "c", f"{name}:half": "d"}
    # The stages that ship are no plug-ins, and some of their modules are not there any more.
    ours = {"tasks.rl.stage:run": "b", "posttrain.stage.config:StageConfig": "e"}
    symbols = {**ours, "tasks.rl.that_moved:Gone": "f", **late}
    try:
        (found,) = used_plugins([run("rl", symbols)])
    finally:
        for module in (name, "tasks.balance"):
            sys.modules.pop(module, None)
    assert (found["kind"], found["class"]) == ("late", f"{name}:Late")
    assert found["sha256"] == sha256_of_json(late)


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
            "sha256": sha256_of_json(late),
        }
    ]
    assert used_plugins(runs[:1]) == []
