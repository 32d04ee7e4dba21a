"""What the default flow declares, with and without a preference section."""

from pathlib import Path

import pytest
from ruamel.yaml import YAML

from posttrain.pipeline.recipe import load_recipe
from posttrain.pipeline.stage_keys import INTERFACE
from posttrain.provenance.code import CodeReader
from posttrain.stage.slots import parts_in

ROOT = Path(__file__).parents[2]


@pytest.fixture
def dag(tmp_path):
    def resolve(text):
        (tmp_path / "recipe.yaml").write_text("flow: flows.post_training\n" + text)
        return load_recipe(tmp_path).resolve(ROOT)

    return resolve


def policies(stage):
    return {
        port.removeprefix("policies."): str(reference)
        for port, reference in stage.inputs.items()
        if port.startswith("policies.")
    }


def test_the_default_recipe_has_no_preference_stage(dag):
    assert "preference" not in dag("").stages
    recipe = YAML(typ="safe").load((ROOT / "recipe.yaml").read_text())
    assert "preference" not in recipe


def test_a_preference_section_adds_the_stage_and_its_policy_to_the_evaluation(dag):
    plain, more = dag(""), dag("preference: {algorithm: ipo}\n")
    assert more.stages.keys() - plain.stages.keys() == {"preference"}
    assert list(policies(more.stages["evaluate"])) == ["base", "sft", "preference", "rl"]
    assert more.stages["preference"].config.algorithm.loss == "ipo"
    assert more.stages["rl"].inputs == plain.stages["rl"].inputs


def test_rl_may_be_rewired_to_start_from_it(dag):
    text = "format: 3\npreference: {}\nrl: {inputs: {policy: preference.policy}}\n"
    assert "preference" in str(dag(text).stages["rl"].inputs["policy"])


def test_a_reward_model_from_elsewhere_takes_the_place_of_training_one(dag, tmp_path):
    (tmp_path / "judge").mkdir()
    more = dag("import_reward_model: {path: judge}\n")
    assert "reward" not in more.stages
    wired = more.stages["evaluate"].inputs["reward_model"]
    assert str(wired) == "import_reward_model.reward_model"


def test_an_imported_model_is_trained_on_the_corpus_where_there_is_a_section_for_it(dag):
    imported = dag("import_model: {path: flows}\n".replace("flows", str(ROOT / "flows")))
    assert "pretrain" not in imported.stages
    midtrained = dag(f"import_model: {{path: {ROOT / 'flows'}}}\npretrain: {{steps: 3}}\n")
    wired = midtrained.stages["pretrain"].inputs
    assert str(wired["policy"]) == "import_model.policy"
    assert str(wired["corpus"]) == "synthesize.corpus"
    assert str(midtrained.stages["sft"].inputs["policy"]) == "pretrain.policy"
    evaluated = policies(midtrained.stages["evaluate"])
    assert list(evaluated) == ["imported", "base", "sft", "rl"]
    assert evaluated["base"] == "pretrain.policy"
    assert list(policies(imported.stages["evaluate"])) == ["base", "sft", "rl"]


def test_dpo_before_rl_with_a_probe_of_each_policy(dag):
    made = dag(
        "preference: {}\n"
        "probe: [{}, {as: probe_dpo, num_samples: 8, inputs: {policy: preference.policy}}]\n"
        "rl: {inputs: {policy: preference.policy, solve_rates: probe_dpo.solve_rates}}\n"
    ).stages
    assert str(made["probe_dpo"].inputs["problems"]) == "curate.problems"
    assert str(made["probe_dpo"].inputs["policy"]) == "preference.policy"
    assert str(made["preference"].inputs["samples"]) == "probe.samples"
    assert made["probe_dpo"].config.num_samples == 8
    names = list(made)
    assert names.index("preference") < names.index("probe_dpo") < names.index("rl")


def test_a_port_for_many_is_rewired_by_a_mapping_too(dag):
    text = "evaluate: {inputs: {policies: {late: sft.policy, base: null}}}\n"
    assert policies(dag(text).stages["evaluate"]) == {
        "sft": "sft.policy",
        "rl": "rl.policy",
        "late": "sft.policy",
    }


def test_neither_a_comment_nor_the_version_is_in_the_key_of_any_stage(dag):
    # How functions are written counts where reached code reads annotations: then a comment would.
    reader = CodeReader(ROOT, packages=("posttrain", "tasks", "flows"), outside=INTERFACE)
    stages = dag("preference: {algorithm: dpo}\n").stages.values()
    for stage in stages:
        parts = [
            f"{type(each).__module__}:{type(each).__name__}" for each in parts_in(stage.config)
        ]
        closure = reader.closure(stage.task.entry, *dict.fromkeys(parts))
        assert [name for name in closure.symbols if name.endswith("<text>")] == [], stage.name
        assert "posttrain:__version__" not in closure.symbols, stage.name
