"""`profile:` of a recipe: defaults by the size of its model, below what recipe and method state."""

import json
import re
import struct
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from posttrain.pipeline.generate import generated_files
from posttrain.pipeline.profile import LEAST_REAL, count_parameters
from posttrain.pipeline.profile_notes import notes_on_profile, set_by_profile
from posttrain.pipeline.profile_values import REAL, USUAL
from posttrain.pipeline.recipe import load_recipe
from posttrain.stage.errors import UserError

ROOT = Path(__file__).parents[2]
HUB = "import_model: {name: Qwen/Qwen2.5-0.5B-Instruct, revision: " + "a" * 40 + "}\n"
LOCAL = "import_model: {path: model}\n"
GPU = "run: {device: cuda}\n"
METHOD = """
name: mine
title: Mine
source: {paper: a note}
family: len
says: It says so.
sets:
  sft: {optimization: {learning_rate: 4.0e-5}, batch_tokens: 9000}
"""


def checkpoint(folder, **shapes):
    """A checkpoint whose headers say these shapes, and which has no numbers."""
    folder.mkdir(exist_ok=True)
    tensors = {name: {"dtype": "F32", "shape": shape} for name, shape in shapes.items()}
    header = json.dumps({"__metadata__": {"format": "pt"}, **tensors}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    return folder


@pytest.fixture
def load(tmp_path):
    (tmp_path / ".dvc").mkdir()

    def read(text, *overrides, form=3, flow="flows.post_training"):
        file = tmp_path / "recipe.yaml"
        head = f"flow: {flow}\n" + (f"format: {form}\n" if form else "")
        file.write_text(head + text)
        return load_recipe(file, overrides)

    return read


@pytest.fixture
def stages(load):
    return lambda *given, **more: load(*given, **more).resolve(ROOT).stages


def test_weights_are_counted_by_headers(tmp_path):
    assert count_parameters(checkpoint(tmp_path / "model", a=[3, 4], b=[5], c=[])) == 12 + 5 + 1
    assert count_parameters(tmp_path) is None
    for wrong in (b"", b"\x00" * 7, struct.pack("<Q", 9) + b"not JSON!", struct.pack("<Q", 2**60)):
        (tmp_path / "model/model.safetensors").write_bytes(wrong)
        assert count_parameters(tmp_path / "model") is None


def test_auto_goes_by_the_size_of_the_model(load, tmp_path):
    assert load("").profile == load("pretrain: {steps: 3}\n").profile
    assert (load("").profile.name, load("").profile.why) == ("tiny", "")
    named = load(HUB).profile
    assert (named.name, named.has_real_model) == ("real", True)
    assert named.why == "import_model names Qwen/Qwen2.5-0.5B-Instruct on the hub"
    checkpoint(tmp_path / "model", embed=[LEAST_REAL - 1])
    assert load(LOCAL).profile.name == "tiny"
    assert (
        load(LOCAL).profile.why == "import_model has 49,999,999 parameters, fewer than 50,000,000"
    )
    checkpoint(tmp_path / "model", embed=[LEAST_REAL - 1], norm=[1])
    assert load(LOCAL).profile.name == "real"
    assert load(LOCAL).profile.why.endswith("has 50,000,000 parameters, at least 50,000,000")


def test_a_stated_profile_holds_whatever_the_size(load, tmp_path):
    checkpoint(tmp_path / "model", embed=[8])
    assert load(LOCAL + "profile: real\n").profile.name == "real"
    assert load(HUB, "profile=tiny").profile.name == "tiny"
    assert load(HUB, "profile=auto").profile.name == "real"
    with pytest.raises(UserError, match=r"profile: there is no profile 'rael'; did you mean"):
        load("profile: rael\n")
    with pytest.raises(UserError, match="no profile '7'; write one of auto, tiny, real"):
        load("profile: 7\n")


@pytest.mark.parametrize("form", [None, 1, 2])
def test_recipes_of_older_formats_keep_their_defaults_unless_they_say_otherwise(load, form):
    old = load(HUB, form=form).profile
    assert (old.name, old.has_real_model) == ("tiny", True)
    assert load(HUB + "profile: auto\n", form=form).profile.name == "real"
    assert load("", form=form).profile.why == ""


def test_a_clone_without_the_model_has_the_profile_that_params_yaml_remembers(load, tmp_path):
    checkpoint(tmp_path / "model", embed=[LEAST_REAL])
    recipe = load(LOCAL)
    text = generated_files(recipe, recipe.resolve(ROOT), [])["params.yaml"]
    (tmp_path / "model/model.safetensors").unlink()
    (tmp_path / "model").rmdir()
    assert load(LOCAL).profile.name == "tiny"
    (tmp_path / "params.yaml").write_text(text)
    assert load(LOCAL).profile.name == "real"
    assert load(LOCAL).profile.why == "import_model is not there, and params.yaml says real"
    # What `dvc repro` calls takes the generated file for the recipe.
    again = load_recipe(tmp_path / "params.yaml").resolve(ROOT)
    assert again.stages["sft"].config == recipe.resolve(ROOT).stages["sft"].config


def test_tiny_sets_nothing_and_is_in_no_generated_file(load):
    recipe = load("preference: {}\n")
    dag = recipe.resolve(ROOT)
    assert "profile" not in recipe.resolved(dag)
    for name in ("pretrain", "sft", "probe", "reward", "preference", "rl", "evaluate"):
        assert dag.stages[name].config == dag.stages[name].task.config.parse({}, where=name)
    assert [*notes_on_profile(recipe, dag), *set_by_profile(recipe, dag)] == []


def test_what_a_recipe_or_its_method_states_goes_before_it(stages, tmp_path):
    assert stages(HUB)["sft"].config.optimization.learning_rate == 1e-5
    stated = stages(HUB + "sft: {optimization: {learning_rate: 3.0e-5, warmup_steps: 9}}\n")
    optimization = stated["sft"].config.optimization
    assert (optimization.learning_rate, optimization.warmup_steps) == (3e-5, 9)
    assert stated["sft"].config.batch_tokens == 65536
    (tmp_path / "methods/len").mkdir(parents=True)
    (tmp_path / "methods/len/mine.yaml").write_text(METHOD)
    of_method = stages(HUB + "method: mine\nsft: {batch_tokens: 8500}\n")["sft"].config
    assert of_method.optimization.learning_rate == 4e-5
    assert of_method.batch_tokens == 8500


def test_adapters_have_a_rate_of_their_own(stages):
    lora = "learner: {lora: {rank: 16}}"
    every = "".join(f"{name}: {{{lora}}}\n" for name in ("sft", "reward", "preference", "rl"))
    found = stages(HUB + every)
    rates = {"sft": 2e-4, "reward": 3e-5, "preference": 5e-6, "rl": 1e-5}
    assert {name: found[name].config.optimization.learning_rate for name in rates} == rates
    assert found["sft"].config.batch_tokens == 16384
    stated = stages(HUB + f"sft: {{{lora}, optimization: {{learning_rate: 1.0e-4}}}}\n")
    assert stated["sft"].config.optimization.learning_rate == 1e-4
    assert stages(HUB + "sft: {learner: {lora: null}}\n")["sft"].config.batch_tokens == 65536


def test_portions_are_no_larger_than_a_stated_batch(stages):
    found = stages(HUB + "sft: {batch_tokens: 8192}\nreward: {batch_tokens: 8193}\n")
    assert found["sft"].config.micro_batch_tokens is None
    assert found["reward"].config.micro_batch_tokens == 8192


def test_a_gpu_computes_in_bfloat16_and_draws_by_vllm(stages):
    on_cpu, on_gpu = stages(HUB), stages(HUB + GPU + "rl: {engine: torch}\nprobe: {engine: vllm}\n")
    assert on_cpu["rl"].config.learner.precision == "fp32"
    assert on_gpu["rl"].config.learner.precision == "bf16"
    assert on_cpu["evaluate"].config.engine.kind == on_gpu["rl"].config.engine.kind == "torch"
    for name in ("probe", "evaluate"):
        assert (on_gpu[name].config.engine.kind, on_gpu[name].config.engine.dtype) == (
            "vllm",
            "bfloat16",
        )
    assert on_gpu["rl"].config.learner.activation_checkpointing
    masked = stages(HUB + GPU + "rl: {draw: {mask: nucleus}}\n")["rl"].config
    assert (masked.engine.kind, masked.learner.precision) == ("torch", "bf16")


def test_a_critic_has_its_rate_where_the_algorithm_has_one(stages):
    assert stages(HUB)["rl"].config.critic.learning_rate == 1e-3
    assert stages(HUB + "rl: {algorithm: ppo}\n")["rl"].config.critic.learning_rate == 1e-5
    stated = stages(HUB + "rl: {algorithm: ppo, critic: {learning_rate: 2.0e-6}}\n")
    assert stated["rl"].config.critic.learning_rate == 2e-6


def test_a_series_says_the_run_again_as_its_profile_has_it(stages):
    series = """
rl: {algorithm: ppo, max_tokens: 64}
series:
  task: tasks.series
  seed_as: rl
  run: {algorithm: ppo, max_tokens: 64}
  inputs:
    policy: sft.policy
    rollouts: rl.rollouts
    run_report: rl.report
    problems: synthesize.heldout
    verifiers: synthesize.verifiers
    reward_model: reward.reward_model
"""
    found = stages(HUB + series)
    run = found["rl"].config.model_dump()
    del run["engine"]
    assert found["series"].config.run.model_dump() == run
    assert run["critic"]["learning_rate"] == 1e-5


def test_only_an_imported_model_is_trained_further_at_its_rate(stages):
    assert stages(HUB + "pretrain: {}\n")["pretrain"].config.optimization.learning_rate == 1e-5
    begun = stages("profile: real\n")
    assert begun["pretrain"].config.optimization.learning_rate == 3e-3
    assert begun["sft"].config.optimization.learning_rate == 1e-5


@pytest.mark.parametrize("package", REAL)
def test_every_value_is_another_than_the_default(package):
    """One that is the default already would be shown by the plan and do nothing."""
    from posttrain.pipeline.flow import load_task

    config = load_task(package, where="test").config
    given = {"run": {}} if package == "tasks.series" else {}
    plain = config.parse(given, where=package).model_dump(mode="json")

    def differ(said, default, path):
        for name, value in said.items():
            if isinstance(value, dict):
                differ(value, default[name] if isinstance(default[name], dict) else {}, path + name)
            else:
                assert value != default.get(name), f"{path}.{name}"

    sets = REAL[package]
    for layer in (sets.always, sets.on_gpu, sets.with_lora, sets.with_critic):
        differ(layer, plain, package)


def test_rates_of_the_profile_are_usual_ones():
    for package, usual in USUAL.items():
        least, most = usual.full["optimization.learning_rate"]
        assert least <= REAL[package].always["optimization"]["learning_rate"] <= most
        least, most = usual.with_lora["optimization.learning_rate"]
        assert least <= REAL[package].with_lora["optimization"]["learning_rate"] <= most


def notes(recipe):
    return [*notes_on_profile(recipe, recipe.resolve(ROOT))]


def test_a_value_ten_times_beyond_the_usual_ones_is_remarked_on(load):
    (chosen,) = notes(load(HUB + "rl: {optimization: {learning_rate: 1.9e-4}}\n"))
    assert chosen.startswith("profile real: import_model names Qwen/")
    _, told = notes(load(HUB + "rl: {optimization: {learning_rate: 1.0e-3}}\n"))
    assert told == (
        "rl.optimization.learning_rate is 0.001; usual for all weights of a model of this size is"
        " 1e-07 to 2e-05: correct it, or leave it out for that of profile: real"
    )
    _, slow = notes(load(HUB + "sft: {optimization: {learning_rate: 2.0e-7}}\n"))
    assert slow.startswith("sft.optimization.learning_rate is 2e-07; usual for all weights")
    _, small = notes(load(HUB + "sft: {batch_tokens: 2048}\n"))
    assert small.startswith("sft.batch_tokens is 2048; usual for all weights")
    adapters = "sft: {learner: {lora: {}}, optimization: {learning_rate: %s}}\n"
    assert len(notes(load(HUB + adapters % "1.0e-3"))) == 1
    assert "for adapters on a model of this size" in notes(load(HUB + adapters % "2.0e-3"))[1]


def test_the_defaults_of_a_tiny_model_are_remarked_on_where_somebody_asks_for_them(load):
    found = notes(load(HUB + "profile: tiny\npreference: {}\nrl: {algorithm: ppo}\n"))
    assert found[0].startswith("profile tiny: the recipe says so; import_model names ")
    assert {each.partition(" ")[0] for each in found[1:]} == {
        "sft.optimization.learning_rate",
        "sft.batch_tokens",
        "preference.optimization.learning_rate",
        "preference.batch_tokens",
        "rl.optimization.learning_rate",
        "rl.critic.learning_rate",
    }


def test_a_schedule_and_a_tiny_model_are_not_remarked_on(load, tmp_path):
    falls = "learning_rate: {from: 1.0e-2, to: 1.0e-3, over: 9}"
    scheduled = f"rl: {{optimization: {{{falls}, lr_schedule: constant, warmup_steps: 0}}}}\n"
    assert len(notes(load(HUB + scheduled))) == 1
    checkpoint(tmp_path / "model", embed=[8])
    assert len(notes(load(LOCAL + "rl: {optimization: {learning_rate: 1.0}}\n"))) == 1


def test_each_value_that_it_set_is_listed_and_none_that_somebody_stated(load):
    text = HUB + GPU + "sft: {batch_tokens: 30000, learner: {packing: false}}\n"
    recipe = load(text)
    listed = {
        line.partition(":")[0]: line.partition(": ")[2]
        for line in set_by_profile(recipe, recipe.resolve(ROOT))
    }
    assert listed["sft"] == (
        "profile real sets micro_batch_tokens 8192, optimization.learning_rate 1e-05,"
        " learner.activation_checkpointing True, learner.precision bf16"
    )
    assert listed["probe"] == (
        "profile real sets batch_size 64, engine.kind vllm, engine.dtype bfloat16"
    )
    assert {*listed} == {"sft", "probe", "reward", "rl", "evaluate"}


def test_rounds_are_listed_by_what_is_said_of_all_of_them(load):
    common = "preference: {optimization: {learning_rate: 1.0e-6}}\n"
    text = f"{HUB}{common}preference_2: {{batch_tokens: 20000}}\n"
    recipe = load(text, flow="flows.iterative_dpo")
    lines = {*set_by_profile(recipe, recipe.resolve(ROOT))}
    both = "micro_batch_tokens 8192, learner.activation_checkpointing True"
    assert f"preference_1: profile real sets batch_tokens 131072, {both}" in lines
    assert f"preference_2: profile real sets {both}" in lines


def test_params_yaml_says_real_alone(load):
    recipe = load(HUB)
    params = YAML(typ="safe").load(generated_files(recipe, recipe.resolve(ROOT), [])["params.yaml"])
    assert params["profile"] == "real"
    assert params["sft"]["optimization"]["learning_rate"] == 1e-5


def test_the_readmes_own_model_learns_at_the_rates_of_its_size(tmp_path):
    """No default that is for a tiny model reaches it."""
    readme = (ROOT / "README.md").read_text()
    folder = tmp_path / "recipes/mine"
    folder.mkdir(parents=True)
    (folder / "recipe.yaml").write_text(re.search(r"```yaml\n(.*?)```", readme, re.DOTALL)[1])
    (tmp_path / "gsm8k").mkdir()
    (tmp_path / "gsm8k/train.jsonl").touch()
    (tmp_path / "models").mkdir()
    checkpoint(tmp_path / "models/Qwen2.5-0.5B", every=[494_000_000])
    recipe = load_recipe(folder)
    dag = recipe.resolve(ROOT)
    configs = {name: stage.config for name, stage in dag.stages.items()}
    rates = {
        name: (said.optimizer.kind, said.learning_rate)
        for name in ("sft", "reward", "preference", "rl")
        for said in (configs[name].optimization,)
    }
    assert rates == {
        "sft": ("adamw", 2e-4),
        "reward": ("adamw", 3e-6),
        "preference": ("adamw", 5e-7),
        "rl": ("adamw", 1e-6),
    }
    assert {configs[name].learner.precision for name in rates} == {"bf16"}
    assert {configs[name].engine.dtype for name in ("probe", "rl", "evaluate")} == {"bfloat16"}
    assert {configs[name].max_length for name in ("sft", "reward", "preference")} == {"auto"}
    assert {configs[name].max_tokens for name in ("probe", "rl", "evaluate")} == {"auto"}
    assert configs["preference"].batch_tokens == 131072
    assert len([*notes_on_profile(recipe, dag)]) == 1


def test_the_table_of_the_documentation_has_the_values():
    lines = (ROOT / "docs/scale.md").read_text().splitlines()
    section, found = "", {}
    for line in lines:
        if line.startswith("| "):
            own, field, *cells = (cell.strip() for cell in line.strip("|").split("|"))
            section = own or section
            found[section, field] = cells
    rate = "`optimization.learning_rate`"
    for name, row, field in (
        ("sft", "`sft`", rate),
        ("reward", "`reward`", "`optimization`"),
        ("preference", "`preference`", rate),
        ("rl", "`rl`, `coevolve`", "`optimization`"),
    ):
        sets = REAL[f"tasks.{name}"]
        _, real, lora, _ = found[row, field]
        assert float(real.split()[-1]) == sets.always["optimization"]["learning_rate"]
        assert float(lora) == sets.with_lora["optimization"]["learning_rate"]
        if "batch_tokens" in sets.always:
            _, real, lora, _ = found[row, "`batch_tokens`"]
            assert (int(real), int(lora)) == (
                sets.always["batch_tokens"],
                sets.with_lora["batch_tokens"],
            )
