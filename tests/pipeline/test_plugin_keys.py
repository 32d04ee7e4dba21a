"""A stage's key follows the plug-ins that its parameters name, and no others."""

import sys

import pytest
from ruamel.yaml import YAML

from posttrain.pipeline.execution.failures import StageFailed
from posttrain.stage.errors import UserError
from tests.quick import first_now

CONFIG = """
from posttrain.stage.schedule import Schedulable
class Config(Schedulable):
    amount: float = 1
    label: str = ""
    mood: str = "fine"
    path: str | None = None
"""
STAGE = """
import json
from HELPER import add
def run(config, inputs, outputs, context):
    before = json.loads(inputs["source"].read_text())["sum"] if "source" in inputs else 0
    total = add(before, config.at(1).amount)
    outputs["result"].write_text(json.dumps({"sum": total}))
    return {"sum": float(total)}
"""
PARTS = """
from typing import Literal
from posttrain.stage.shapes.base import ScheduleShape
class Early(ScheduleShape):
    kind: Literal["early"] = "early"
    def value(self, start, end, progress):
        return start + (end - start) * 0.75
class Late(ScheduleShape):
    kind: Literal["late"] = "late"
    def value(self, start, end, progress):
        return start + (end - start) * 0.25
PARTS = {"schedule": {"early": Early, "late": Late}}
"""
NAMED = "second: {amount: {from: 0, to: 4, over: 2, shape: early}}\n"


@pytest.fixture
def project(toy):
    """The toy whose numbers may be schedules; what is written there is imported anew."""
    toy.write(f"{toy.package}/config.py", CONFIG)
    toy.write(f"{toy.package}/stage.py", STAGE.replace("HELPER", toy.helper))
    before = set(sys.modules)
    yield toy
    for name in set(sys.modules) - before:
        if str(toy.root) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def planned(project):
    """What `plan` says of each stage, of the plug-ins as they are on disk now."""
    for name in ("my_turns", "mine.turns", "turns", "my_maths"):
        sys.modules.pop(name, None)
    return {name: decision.action for name, decision in project.plan().items()}


UP_TO_DATE = {"first": "cached", "second": "cached", "third": "cached"}
SECOND_ANEW = {"first": "cached", "second": "run", "third": "pending"}


@pytest.mark.parametrize("place", first_now(["my_turns", "mine.turns"]))
def test_a_plugin_of_the_project_is_followed(project, edit, place):
    file = project.write(f"{place.replace('.', '/')}.py", PARTS)
    project.recipe(f"plugins: [{place}]\n" + NAMED)
    made = project.run()
    assert made["second"].metrics["sum"] == 1 + 3
    assert planned(project) == UP_TO_DATE
    dvc = YAML(typ="safe").load((project.root / "dvc.yaml").read_text())["stages"]
    relative = file.relative_to(project.root).as_posix()
    assert [name for name in dvc if relative in dvc[name]["deps"]] == ["second"]

    edit(file, "* 0.25", "* 0.5  # of a part that no stage names")
    assert planned(project) == UP_TO_DATE
    edit(file, "* 0.75", "* 0.5")
    assert planned(project) == SECOND_ANEW
    reason = project.plan()["second"].reasons[0]
    assert reason.startswith(f"the code of {place}:Early")
    assert project.run()["second"].metrics["sum"] == 1 + 2


def test_an_error_in_a_part_is_told_with_its_slot_its_kind_and_the_line(project):
    text = PARTS.replace("* 0.75", "* {}['share']")
    line = 1 + text.partition("{}['share']")[0].count("\n")
    file = project.write("my_turns.py", text)
    project.recipe("plugins: [my_turns]\n" + NAMED)
    with pytest.raises(StageFailed) as caught:
        project.run()
    assert f"schedule.early raised KeyError: 'share' ({file}:{line})" in str(caught.value)
    (log,) = project.root.rglob("second*.log")
    assert "Traceback (most recent call last)" in log.read_text()


def test_what_a_plugin_imports_is_followed(project, edit):
    maths = project.write("my_maths.py", "def half(x):\n    return x / 2\n")
    text = PARTS.replace("start + (end - start) * 0.75", "half(end)")
    project.write("my_turns.py", "from my_maths import half\n" + text)
    project.recipe("plugins: [my_turns]\n" + NAMED)
    assert project.run()["second"].metrics["sum"] == 1 + 2
    edit(maths, "x / 2", "x / 4")
    assert planned(project) == SECOND_ANEW


def install(folder, version="1.5", origin=None):
    """Lay out an installed package `turns`, which offers the schedule `early`."""
    info = folder / "turns.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (folder / "turns.py").write_text(PARTS)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: turns\nVersion: {version}\n")
    (info / "entry_points.txt").write_text("[posttrain.parts]\nschedule.early = turns:Early\n")
    (info / "RECORD").write_text("turns.py,,\n")
    if origin:
        (info / "direct_url.json").write_text(origin)


@pytest.fixture
def site(tmp_path_factory, monkeypatch):
    """A folder of installed packages that no other test sees."""
    from posttrain.provenance.code import distributions, requirements

    folder = tmp_path_factory.mktemp("site")
    monkeypatch.syspath_prepend(str(folder))

    def forget():
        sys.modules.pop("turns", None)
        for name in ("version", "_providers", "_installed"):
            getattr(distributions, name).cache_clear()
        for name in ("_installed", "_required", "_headers", "_folders"):
            getattr(requirements, name).cache_clear()

    forget()
    yield folder, forget
    forget()


def test_an_installed_plugin_counts_by_source_and_version(project, edit, site):
    folder, forget = site
    install(folder)
    project.recipe(NAMED)
    made = project.run()
    assert made["second"].metrics["sum"] == 1 + 3
    key = made["second"].components
    assert key["packages"]["turns"] == "1.5"
    assert "turns:Early" in key["code"]
    assert "turns:Late" not in key["code"]
    assert "turns" not in made["first"].components["packages"]

    install(folder, version="1.6")
    forget()
    assert planned(project) == SECOND_ANEW
    install(folder)
    forget()
    assert planned(project) == UP_TO_DATE
    edit(folder / "turns.py", "* 0.75", "* 0.5")
    assert planned(project) == SECOND_ANEW


@pytest.mark.slow
def test_a_plugin_installed_for_editing_counts_by_source_alone(project, edit, site):
    folder, forget = site
    origin = '{"url": "file:///somewhere", "dir_info": {"editable": true}}'
    install(folder, origin=origin)
    project.recipe(NAMED)
    assert "turns" not in project.run()["second"].components["packages"]
    install(folder, version="1.5.dev7", origin=origin)
    forget()
    assert planned(project) == UP_TO_DATE
    edit(folder / "turns.py", "* 0.75", "* 0.5")
    assert planned(project) == SECOND_ANEW


def test_what_is_there_and_not_named_changes_nothing(project, site):
    project.recipe("second: {amount: {from: 0, to: 4, over: 2}}\n")
    project.run()
    folder, _ = site
    install(folder)
    project.write("my_turns.py", PARTS.replace('"early"', '"unused"'))
    project.recipe("plugins: [my_turns]\nsecond: {amount: {from: 0, to: 4, over: 2}}\n")
    assert planned(project) == UP_TO_DATE
    assert "turns" not in sys.modules


def test_plan_refuses_a_kind_that_nobody_offers(project):
    project.write("my_turns.py", PARTS)
    project.recipe("plugins: [my_turns]\n" + NAMED.replace("early", "erly"))
    with pytest.raises(UserError) as caught:
        project.plan()
    sentence = (
        "second.amount.shape: there is no schedule 'erly'; did you mean 'early'? If a plug-in"
        " offers 'erly', name its module under `plugins`"
    )
    assert str(caught.value) == sentence
    assert not (project.root / ".posttrain").exists()
