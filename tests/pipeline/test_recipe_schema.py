"""The JSON schema of recipes takes what `plan` takes, and refuses what it can see is wrong."""

import copy
import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner
from ruamel.yaml import YAML

from posttrain.cli.main import cli
from posttrain.pipeline.recipe import RunSettings
from posttrain.pipeline.recipe_schema import recipe_schema, stages_of_flow
from posttrain.publishing.release.config import ReleaseConfig
from posttrain.stage.errors import UserError

ROOT = Path(__file__).parents[2]
RECIPES = [ROOT / "recipe.yaml", *sorted(ROOT.glob("recipes/*/recipe.yaml"))]


@pytest.fixture(scope="module")
def schema():
    return recipe_schema("flows.post_training", ROOT, release=ReleaseConfig)


def complaints(schema, values):
    """Where a validator finds something wrong, by the path of the value."""
    errors = jsonschema.Draft202012Validator(schema).iter_errors(values)
    return {".".join(str(part) for part in error.absolute_path) or "." for error in errors}


@pytest.mark.slow  # five seconds
def test_it_is_a_schema(schema):
    jsonschema.Draft202012Validator.check_schema(schema)


def test_it_explains_every_field(schema):
    (run, _) = schema["properties"]["run"]["anyOf"]
    described = schema["$defs"][run["$ref"].rpartition("/")[2]]["properties"]
    assert described.keys() == RunSettings.model_fields.keys()
    assert described["seed"]["description"] == "Every random choice of every stage derives from it."


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.parent.name)
def test_shipped_recipes_are_valid(schema, recipe):
    values = YAML(typ="safe").load(recipe.read_text())
    if values["flow"] != "flows.post_training":
        schema = recipe_schema(values["flow"], ROOT, release=ReleaseConfig)
    assert complaints(schema, values) == set()


BASE = {"flow": "flows.post_training", "format": 2}


@pytest.mark.parametrize(
    "section",
    [
        {"rl": None},
        {"rl": {"seed_as": "sft", "inputs": {"policy": "sft.policy"}}},
        {"rl": {"resources": {"processes": 2, "ray": "auto"}}},
        {"preference": {"inputs": {"samples": None, "policies.sft": None}}},
        {"probe": [{"num_samples": 2}, {"as": "late", "num_samples": 4, "inputs": {}}]},
        {"late": {"repeats": "probe", "num_samples": 4}},
        {"mine": {"task": "tasks.mine", "inputs": {"x": "sft.policy"}, "amount": 3}},
        {"rl": {"draw": {"sampler": "uniform"}}},
        {"rl": {"draw": {"sampler": {"kind": "solve_rate", "exponent": 1.0}}}},
        {"preference": {"algorithm": "dpo"}},
        {"preference": {"algorithm": {"preset": "ipo", "beta": 0.3}}},
        {"rl": {"algorithm": "grpo"}},
        {"rl": {"algorithm": {"preset": "grpo", "surrogate": {"low": 0.1}}}},
        {"rl": {"algorithm": {"advantage": "group", "regularizers": {"kl": None}}}},
        {"rl": {"algorithm": {"regularizers": {"kl": {"coefficient": 0.1}, "entropy": None}}}},
        {"rl": {"algorithm": {"regularizers": {"far": {"kind": "kl", "coefficient": 0.1}}}}},
        {"curate": {"problem_filters": {"near_duplicates": {"similarity": 0.9}, "length": None}}},
        {"curate": {"problem_filters": {"prompt_length": {"most": 9}}}},
        {"curate": {"problem_filters": ["exact_duplicates", {"kind": "length", "column": "x"}]}},
        {"rl": {"reward": {"components": {"correct": "verifier"}}}},
        {"rl": {"resources": {"ray": "local"}}},
        {"release": {"policy": "rl.policy"}},
    ],
    ids=str,
)
def test_what_plan_takes_is_valid(schema, section):
    assert complaints(schema, BASE | section) == set()


@pytest.mark.parametrize(
    ("values", "place"),
    [
        ({"rll": {}}, "rll"),
        ({"rounds": 3}, "rounds"),
        ({"probe": []}, "probe"),
        ({"probe": [{}, {}]}, "probe"),
        ({"more": {"task": "tasks.probe", "repeats": "probe"}}, "more"),
        ({"format": 99}, "format"),
        ({"flow": "flows.other"}, "flow"),
        ({"run": {"sed": 1}}, "run"),
        ({"run": {"threads": 0}}, "run"),
        ({"rl": {"steps": "many"}}, "rl"),
        ({"rl": {"step": 3}}, "rl"),
        ({"rl": {"inputs": {"policy": "sft"}}}, "rl"),
        ({"rl": {"draw": {"sampler": {"kind": "solve_rate", "exponnt": 1.0}}}}, "rl"),
        ({"rl": {"draw": {"sampler": {"exponent": 1.0}}}}, "rl"),
        ({"rl": {"draw": {"sampler": "solv_rate"}}}, "rl"),
        ({"rl": {"reward": {"components": {"correct": "verifer"}}}}, "rl"),
        ({"rl": {"algorithm": {"ration": {}}}}, "rl"),
        ({"rl": {"algorithm": "gropo"}}, "rl"),
        ({"rl": {"algorithm": {"preset": "gropo"}}}, "rl"),
        ({"rl": {"algorithm": {"surrogate": {"lo": 0.1}}}}, "rl"),
        ({"rl": {"algorithm": {"surrogate": {"kind": "clip", "lo": 0.1}}}}, "rl"),
        ({"rl": {"algorithm": {"surrogate": {"kind": "sapo", "low": 0.1}}}}, "rl"),
        ({"rl": {"algorithm": {"regularizers": {"kl": {"cofficient": 0.1}}}}}, "rl"),
        ({"rl": {"temperature": {"from": 1.0, "to": 0.5, "over": 3, "shap": "cosine"}}}, "rl"),
        ({"preference": {"algorithm": "dop"}}, "preference"),
        ({"preference": {"algorithm": {"preset": "dop"}}}, "preference"),
        ({"preference": {"pairs": {"builder": "best_wrst"}}}, "preference"),
        ({"curate": {"problem_filters": {"near_duplicates": {"similarty": 0.9}}}}, "curate"),
        ({"curate": {"problem_filters": ["length"]}}, "curate"),
        ({"synthesize": {"sources": [{"kind": "jsonl", "name": "x", "paths": "y"}]}}, "synthesize"),
        ({"release": {"gates": [{"name": "x", "kind": "no_such_gate"}]}}, "release"),
        ({"plugins": {"mine": 1}}, "plugins"),
    ],
    ids=str,
)
def test_what_is_wrong_is_found(schema, values, place):
    assert complaints(schema, BASE | values) == {place}


def test_parts_of_the_recipes_plug_ins_are_checked_like_those_that_ship(tmp_path, monkeypatch):
    part = ROOT / "tests" / "extend" / "plugins" / "my_component.py"
    (tmp_path / "my_component_here.py").write_text(part.read_text())
    monkeypatch.syspath_prepend(str(tmp_path))
    flow, plugins = "flows.post_training", ["my_component_here"]
    made = recipe_schema(flow, ROOT, release=ReleaseConfig, plugins=plugins)

    def with_component(value):
        return complaints(made, BASE | {"rl": {"reward": {"components": {"brief": value}}}})

    assert with_component({"kind": "brevity", "longest": 12}) == set()
    assert with_component({"kind": "brevity", "longst": 12}) == {"rl"}
    assert with_component({"kind": "brevty"}) == {"rl"}


def test_a_part_whose_kind_is_any_text_stands_under_its_own_kind_alone(tmp_path, monkeypatch):
    part = (ROOT / "tests" / "extend" / "plugins" / "my_component.py").read_text()
    assert 'Literal["brevity"] = ' in part
    loose = part.replace('Literal["brevity"] = ', "str = ").replace(
        "longest: int", "longest: int = 9"
    )
    (tmp_path / "my_loose.py").write_text(loose)
    monkeypatch.syspath_prepend(str(tmp_path))
    made = recipe_schema("flows.post_training", ROOT, release=ReleaseConfig, plugins=["my_loose"])
    for component in ({"kind": "verifier"}, {"kind": "brevity"}):
        section = {"rl": {"reward": {"components": {"one": component}}}}
        assert complaints(made, BASE | section) == set()


def test_sections_that_a_flow_chooses_between_are_all_there():
    stages = stages_of_flow("flows.post_training", ROOT)
    assert {"pretrain", "import_model", "reward", "import_reward_model", "rl"} <= stages.keys()
    assert stages["preference"].package == "tasks.preference"


def test_the_verb_writes_the_schema_of_the_recipe_here(toy, monkeypatch):
    monkeypatch.chdir(toy.root)
    done = CliRunner().invoke(cli, ["schema", "-o", "recipe.schema.json"])
    assert done.exit_code == 0, done.output
    made = json.loads((toy.root / "recipe.schema.json").read_text())
    recipe = {"flow": toy.flow, "second": {"amount": 3}}
    assert complaints(made, recipe) == set()
    wrong = copy.deepcopy(recipe)
    wrong["second"]["amont"] = wrong["second"].pop("amount")
    assert complaints(made, wrong) == {"second"}
    printed = CliRunner().invoke(cli, ["schema", "--flow", toy.flow])
    assert json.loads(printed.stdout) == made
    with pytest.raises(UserError, match="there is no flow 'flows.pst_training'"):
        CliRunner().invoke(cli, ["schema", "--flow", "flows.pst_training"], catch_exceptions=False)


def test_in_a_recipes_own_folder_plug_ins_are_those_of_the_project(toy):
    part = (ROOT / "tests" / "extend" / "plugins" / "my_component.py").read_text()
    (toy.root / "my_far_component.py").write_text(part)
    mine = toy.root / "recipes" / "mine"
    mine.mkdir(parents=True)
    (mine / "recipe.yaml").write_text(f"flow: {toy.flow}\nplugins: [my_far_component]\n")
    command = [sys.executable, "-m", "posttrain", "schema"]
    here = subprocess.run(command, cwd=mine, capture_output=True, text=True, check=False)
    assert here.returncode == 0, here.stderr
    named = [*command, "--recipe", "recipes/mine"]
    there = subprocess.run(named, cwd=toy.root, capture_output=True, text=True, check=False)
    assert there.stdout == here.stdout
