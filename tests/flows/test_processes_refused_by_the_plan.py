"""What several processes cannot share: the plan says what the stage would, in the same words."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from transformers import AutoConfig, AutoModelForSequenceClassification

from posttrain.cli.main import cli
from posttrain.learning.models.architectures import refuse_headless
from posttrain.learning.models.subnetwork_file import FILE
from posttrain.pipeline.recipe import load_recipe
from posttrain.stage.config import refuse_processes
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from tasks.rl.config import RlStageConfig
from tasks.rl.stage import run

ROOT = Path(__file__).parents[2]
_WHOLE = "works on whole weights, but several processes have a part each; do without it, or leave"
_PLAYED = (
    "but with resources.processes each process plays all episodes itself, and they would be others"
    " in each; leave resources.processes out"
)
_UNSURE = (
    "asks the policy how unsure it is, and several processes have a part of it each; leave"
    " resources.processes out"
)
REFUSED = {
    "staleness: 1, ahead: 1": (
        "ahead wants the whole policy in one process, but resources.processes has a part of it in"
        " each; set ahead to 0, or leave resources.processes out"
    ),
    "algorithm: {advantage: {kind: learned}}": (
        f"advantage learned {_WHOLE} resources.processes out"
    ),
    "draw: {mask: nucleus}": (
        "action_mask.nucleus is asked with the whole policy, but resources.processes has a part of"
        " it in each; leave one of the two out"
    ),
    "producer: branched": f"producer branched {_UNSURE}",
    "producer: noised, engine: masked_diffusion": (
        "producer noised needs the policy's weights, of which several processes have a part each;"
        " leave resources.processes out"
    ),
    "producer: {kind: episodes, branching: entropy_rise}": f"branching entropy_rise {_UNSURE}",
    "producer: {kind: episodes, most_seconds: 9}": f"most_seconds goes by the clock, {_PLAYED}",
    "producer: {kind: episodes, roles: {user: {kind: earlier}}}": (
        "player earlier keeps copies of the policy, which several processes share out; set"
        " resources.processes to 1, or let a checkpoint play"
    ),
    "producer: {kind: episodes, roles: {user: {kind: person}}}": (
        "player person: several processes share the policy out, and each would ask; set"
        " resources.processes to 1"
    ),
    "draw: {instructions: {kind: population, texts: [Think.]}}": (
        "draw.instructions: a population has its new members written and tried by the whole policy,"
        " and several processes share it out; set resources.processes to 1, or leave instructions"
        " out"
    ),
    "algorithm: {foreign: shaped}, draw: {additions: {kind: traces, choose: understood}}": (
        "draw.additions chooses by what the policy understands, and several processes have a part"
        " of it each; set choose to random, or leave resources.processes out"
    ),
}
"""Values of RL, and what is said of them."""


@pytest.fixture
def dag(tmp_path):
    def resolve(text):
        (tmp_path / "recipe.yaml").write_text(f"flow: flows.post_training\nformat: 3\n{text}\n")
        return load_recipe(tmp_path).resolve(ROOT)

    return resolve


@pytest.mark.parametrize("values", REFUSED)
def test_the_plan_and_the_stage_say_the_same(dag, tmp_path, values):
    with pytest.raises(UserError) as planned:
        dag(f"rl: {{{values}, resources: {{processes: 2}}}}")
    assert str(planned.value) == f"rl: {REFUSED[values]}"
    config = RlStageConfig.parse(yaml.safe_load(f"{{{values}}}"), where="rl")
    # Before a model is read, of which there is none here.
    with pytest.raises(UserError) as ran:
        run(config, {}, {}, replace(StageContext.quiet(tmp_path), processes=2))
    assert str(ran.value) == str(planned.value)
    refuse_processes(config, 1, where="rl")


def test_an_engine_that_wants_a_process_of_its_own_beside_each_of_several(dag):
    text = "rl: {engine: vllm, resources: {processes: 2%s}}"
    with pytest.raises(UserError) as planned:
        dag(text % "")
    assert str(planned.value) == (
        "rl.engine vllm needs a process of its own beside each of resources.processes; set"
        " resources.ray, whose actors have an engine each, or set engine to torch"
    )
    assert "rl" in dag(text % ", ray: local").stages
    assert "rl" in dag("rl: {engine: vllm}").stages


@pytest.fixture
def imported(tmp_path):
    """A folder with the config of a model, of which the plan reads no more."""

    def described(model_type):
        (tmp_path / "model").mkdir()
        config = {"model_type": model_type}
        (tmp_path / "model" / "config.json").write_text(json.dumps(config))
        return tmp_path / "model"

    return described


def test_a_subnetwork_is_trained_by_one_process(dag, imported):
    said = "sft: a subnetwork is trained by one process alone; set resources.processes to 1"
    made = (
        "moved: {task: tasks.subnetwork, names: ['*'], inputs: {policy: pretrain.policy}}\n"
        "sft: {inputs: {policy: moved.policy}%s}"
    )
    shared = ", resources: {processes: 2}"
    with pytest.raises(UserError) as planned:
        dag(made % shared)
    assert str(planned.value) == said
    assert "sft" in dag(made % "").stages
    folder, brought = imported("llama"), "import_model: {path: model}\nsft: {resources: %s}"
    assert "sft" in dag(brought % "{processes: 2}").stages
    (folder / FILE).touch()
    with pytest.raises(UserError) as planned:
        dag(brought % "{processes: 2}")
    assert str(planned.value) == said
    assert "sft" in dag(brought % "{processes: 1}").stages


def test_a_scalar_head_on_an_architecture_that_has_none(dag, imported):
    imported("mamba")
    text = "import_model: {path: model}\nreward: {parameterization: %s}"
    with pytest.raises(UserError) as planned:
        dag(text % "head")
    assert str(planned.value) == (
        "reward: transformers has no model with a scalar head for the architecture 'mamba'; set"
        " reward.parameterization to likelihood"
    )
    assert "reward" in dag(text % "likelihood").stages


@pytest.mark.parametrize("model_type", ["mamba", "llama", "qwen2", "gemma3n_text", "granite"])
def test_that_there_is_no_head_is_what_transformers_says_too(model_type):
    config = AutoConfig.for_model(model_type)
    if type(config) in AutoModelForSequenceClassification._model_mapping:
        refuse_headless(model_type, where="reward")
    else:
        with pytest.raises(UserError, match=f"no model with a scalar head .* '{model_type}'"):
            refuse_headless(model_type, where="reward")


@pytest.mark.parametrize("section", ["sft: {learner: {%s}}", "probe: {engine: {kind: torch, %s}}"])
def test_flash_attention_on_a_processor(tmp_path, section):
    (tmp_path / "recipe.yaml").write_text(
        "flow: flows.post_training\nformat: 3\nrun: {threads: 1}\n"
        + section % "attention: flash_attention_2"
    )
    (tmp_path / ".dvc").mkdir()
    done = CliRunner().invoke(cli, ["plan", str(tmp_path)])
    assert isinstance(done.exception, UserError)  # for which the program exits with 2
    assert str(done.exception) == (
        f"{section.partition(':')[0]}: attention flash_attention_2 needs a GPU, and the model is on"
        " the cpu; take sdpa"
    )
