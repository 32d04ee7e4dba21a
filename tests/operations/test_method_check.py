"""Switches of methods change what is learned, or are told as doing nothing."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from posttrain.cli.main import cli
from posttrain.methods.find import find_method
from posttrain.methods.method import Method
from posttrain.operations.method_check import ALL_OF_IT, make_tiny_world, switch_effects
from posttrain.pipeline.recipe_schema import stages_of_flow

ROOT = Path(__file__).parents[2]
# One update of rollouts of its own policy has ratio 1, which no dual clip reaches.
IDLE = Method.parse(
    {
        "name": "idle",
        "title": "Idle",
        "source": {"paper": "a note"},
        "family": "pg",
        "says": "Nothing.",
        "sets": {"rl": {"algorithm": {"surrogate": {"dual": 3.0}}}},
    },
    where="idle",
)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    tasks = stages_of_flow("flows.post_training", ROOT)
    return make_tiny_world(tmp_path_factory.mktemp("world"), tasks)


def test_what_acts_and_what_does_nothing_is_told_apart(world):
    method = find_method("grpo").method
    found = {each.switch: each for each in switch_effects(method, world)}
    assert found[ALL_OF_IT].acts
    assert found["rl.algorithm.advantage"].acts
    assert found["rl.algorithm.regularizers"].acts
    idle = {each.switch: each for each in switch_effects(IDLE, world)}
    assert idle.keys() == {ALL_OF_IT, "rl.algorithm.surrogate"}
    assert [each.change for each in idle.values()] == [0.0, 0.0]
    assert not idle[ALL_OF_IT].acts


def test_what_the_rest_needs_cannot_be_taken_out(world):
    found = {each.switch: each for each in switch_effects(find_method("simpo").method, world)}
    assert found[ALL_OF_IT].acts
    assert found["preference.algorithm.per_token"].change is None
    assert "set per_token to true" in found["preference.algorithm.per_token"].remark


def test_a_method_of_no_such_section_has_no_line(world):
    assert list(switch_effects(find_method("default").method, world)) == []


def test_a_method_that_does_nothing_as_a_whole_ends_the_command_with_1(tmp_path, monkeypatch):
    file = tmp_path / "methods" / "pg" / "idle.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(IDLE.model_dump(mode="json")))
    (tmp_path / ".dvc").mkdir()
    monkeypatch.chdir(tmp_path)
    said = CliRunner().invoke(cli, ["method", "check", "idle"])
    assert said.exit_code == 1
    assert said.output.count("does nothing") == 3
    assert "1 methods; 2 of 2 switches do nothing" in said.output
    (kept,) = (tmp_path / "methods" / "checks.jsonl").read_text().splitlines()
    assert not json.loads(kept)["passed"]
    assert "what they set does nothing: idle" in said.output
