"""What agents are told: short, of this installation, and true."""

import re
from pathlib import Path

import pytest

from posttrain.cli.agent_docs import text_for_agents
from posttrain.cli.legends import LEGENDS, say_legend
from posttrain.cli.main import VERBS
from posttrain.pipeline.recipe import load_recipe
from posttrain.pipeline.slots import SLOTS

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def text():
    return text_for_agents()


def test_it_is_short_and_whole(text):
    assert 1500 < len(text.split()) < 4000
    assert not re.findall(r"(?<![\w.])@\w+@", text)


def test_it_names_every_verb_task_and_slot(text):
    for section in VERBS.values():
        assert [name for name in section if f"`{name}`" not in text] == []
    tasks = [path.parent.name for path in ROOT.glob("tasks/*/__init__.py")]
    assert [name for name in tasks if f"`tasks.{name}`: " not in text] == []
    assert [slot for slot in SLOTS if f"\n- {slot}: " not in text and slot != "artifact_kind"] == []


def test_its_verbs_are_there(text):
    known = {name for section in VERBS.values() for name in section}
    assert {*re.findall(r"`posttrain ([a-z-]+)", text)} <= known


def test_its_example_is_the_one_that_the_tests_of_extending_run(text):
    tested = (ROOT / "tests/extend/plugins/my_component.py").read_text()
    (shown,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert tested.endswith(shown)


def test_its_recipe_is_one(text, tmp_path, monkeypatch):
    (recipe,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    (tmp_path / ".dvc").mkdir()
    (tmp_path / "recipe.yaml").write_text(recipe)
    (shown,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (tmp_path / "my_component.py").write_text(shown)
    monkeypatch.syspath_prepend(str(tmp_path))
    loaded = load_recipe(tmp_path)
    stages = loaded.resolve(tmp_path).stages
    assert stages["rl"].config.reward.components["brief"].longest == 200
    assert stages["rl"].config.algorithm.surrogate.high == 0.28
    assert loaded.cost_settings().budget.gpu_hours == 8


def test_a_legend_stands_below_a_table_on_a_terminal_alone(monkeypatch, capsys):
    say_legend("gate")
    assert capsys.readouterr().out == ""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    say_legend("gate", "cost")
    out = capsys.readouterr().out
    assert LEGENDS["gate"] in out
    assert LEGENDS["cost"] in out


def test_every_legend_is_shown_somewhere():
    code = "".join(path.read_text() for path in (ROOT / "posttrain/cli").glob("*.py"))
    asked = {*re.findall(r'"(\w+)"', "".join(re.findall(r"say_legend\((.*?)\)\n", code)))}
    assert LEGENDS.keys() <= asked
