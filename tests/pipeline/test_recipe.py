"""Recipes: overrides, rewiring, and a sentence for every mistake."""

from pathlib import Path

import pytest

import flows.post_training
from posttrain.pipeline.generate import stage_entries
from posttrain.pipeline.recipe import load_recipe
from posttrain.pipeline.recipe_file import apply_override
from posttrain.pipeline.workspace import Workspace
from posttrain.provenance.code.closure import CodeClosure
from posttrain.stage.declared import shipped_path
from posttrain.stage.errors import UserError


def refused(toy, recipe, *overrides):
    """The sentence with which a recipe is refused."""
    toy.recipe(recipe)
    with pytest.raises(UserError) as caught:
        load_recipe(toy.root, overrides).resolve(toy.root)
    assert not (toy.root / ".posttrain").exists()
    return str(caught.value)


def test_defaults_are_filled_and_sections_override_them(toy):
    toy.recipe("second: {amount: 5}\n")
    dag = load_recipe(toy.root).resolve(toy.root)
    assert [stage.config.amount for stage in dag.stages.values()] == [1, 5, 1]


def test_a_number_that_is_not_finite_is_refused():
    from tasks.sft.config import SftConfig

    for value in (float("inf"), float("nan")):
        with pytest.raises(UserError, match="learning_rate.*finite number"):
            SftConfig.parse({"optimization": {"learning_rate": value}}, where="sft")


def test_set_overrides_the_file_and_reads_values_as_yaml(toy):
    toy.recipe("second: {amount: 5}\n")
    recipe = load_recipe(toy.root, ["second.amount=7", "run.seed=3"])
    assert recipe.resolve(toy.root).stages["second"].config.amount == 7
    assert recipe.run.seed == 3
    assert recipe.overrides == {"second.amount": 7, "run.seed": 3}


def test_exponents_without_a_dot_are_numbers(toy):
    # YAML 1.1 reads 1e-4 as text; a learning rate that is silently a string would be a bad day.
    assert load_recipe(toy.root, ["a.b=1e-4"]).overrides == {"a.b": 1e-4}


def test_resolved_states_every_field_and_loads_to_the_same_dag(toy):
    toy.recipe("second: {amount: 5}\nthird: {inputs: {source: first.result}}\n")
    recipe = load_recipe(toy.root)
    dag = recipe.resolve(toy.root)
    resolved = recipe.resolved(dag)
    assert resolved["first"] == {"amount": 1, "label": "", "mood": "fine", "path": None}
    assert resolved["third"]["inputs"] == {"source": "first.result"}
    assert dag.upstream("third") == ["first"]


def test_unknown_section_names_the_nearest(toy):
    sentence = refused(toy, "secnd: {amount: 2}\n")
    place, _, rest = sentence.partition(": ")
    assert place == str(toy.root / "recipe.yaml")
    assert rest == "unknown section 'secnd'; did you mean 'second'?"


@pytest.mark.parametrize("wrong", ["plugins: [nosuch]", "secnd: {amount: 2}", "flow: flows.nosuch"])
def test_the_file_is_named_from_the_present_folder(toy, monkeypatch, wrong):
    flow = "" if wrong.startswith("flow") else f"flow: {toy.flow}\n"
    toy.write("recipes/mine/recipe.yaml", f"{flow}{wrong}\n")
    monkeypatch.chdir(toy.root)
    with pytest.raises(UserError, match=r"^recipes/mine/recipe\.yaml: "):
        load_recipe(toy.root / "recipes/mine").resolve(toy.root)


def test_unknown_parameter_names_the_nearest(toy):
    assert refused(toy, "second: {amont: 2}\n") == (
        "second.amont: unknown key; did you mean 'amount'?"
    )


def test_an_override_below_a_section_that_is_written_as_a_name_keeps_the_name():
    values = {"preference": {"algorithm": "dpo"}, "import_chats": {"format": "alpaca"}}
    apply_override(values, "preference.algorithm.beta", 0.3)
    assert values["preference"] == {"algorithm": {"preset": "dpo", "beta": 0.3}}
    with pytest.raises(UserError, match="set the whole: format: {kind: alpaca, ...}"):
        apply_override(values, "import_chats.format.columns", {})


def test_unknown_run_setting_names_the_nearest(toy):
    assert refused(toy, "run: {sed: 2}\n") == "run.sed: unknown key; did you mean 'seed'?"


def test_wrong_type_and_range_say_what_was_given(toy):
    assert refused(toy, "second: {amount: many}\n").startswith("second.amount: input should be")
    assert "greater than or equal to 1, got 0" in refused(toy, "run: {threads: 0}\n")


def test_input_that_names_a_missing_stage(toy):
    sentence = refused(toy, "third: {inputs: {source: secnd.result}}\n")
    assert sentence == "third.inputs.source: there is no stage 'secnd'; did you mean 'second'?"


def test_input_that_names_a_missing_output(toy):
    sentence = refused(toy, "third: {inputs: {source: second.results}}\n")
    assert sentence == (
        "third.inputs.source: second has no output 'results'; did you mean 'result'?"
    )


def test_cycle_is_drawn(toy):
    sentence = refused(toy, "first: {inputs: {source: third.result}}\n")
    assert sentence.startswith("the stages form a cycle: ")
    assert {"first", "second", "third"} <= set(sentence.replace(";", "").split())


def test_malformed_yaml_names_file_and_line(toy):
    assert "recipe.yaml:3: not valid YAML" in refused(toy, "second: {amount: 1\nfoo\n")


def test_missing_flow_names_the_nearest_of_the_folder(toy):
    toy.write("flows/post.py", "def declare(build): ...")
    sentence = refused(toy, "flow: flows.pst\n")
    assert sentence.endswith("there is no flow 'flows.pst'; did you mean 'flows.post'?")


@pytest.mark.parametrize("flow", ["flows.post_trainin", "flow.post_training", "post_training"])
def test_missing_flow_names_the_nearest_that_comes_with_posttrain(toy, flow):
    toy.write("flows/small.py", "def declare(build): ...")
    sentence = refused(toy, f"flow: {flow}\n")
    assert sentence.endswith(f"there is no flow '{flow}'; did you mean 'flows.post_training'?")


def test_a_flow_that_is_like_none_is_refused_with_all_of_them(toy):
    toy.write("flows/small.py", "def declare(build): ...")
    sentence = refused(toy, "flow: zzz\n")
    shipped = {
        f"flows.{file.stem}" for file in Path(flows.post_training.__file__).parent.glob("[!_]*.py")
    }
    known = ", ".join(sorted(shipped | {"flows.small"}))
    assert sentence.endswith(f"there is no flow 'zzz'; there are {known}")


def test_override_without_a_value(toy):
    assert refused(toy, "", "second.amount") == (
        "--set takes section.parameter=value, got 'second.amount'"
    )


def test_missing_file_is_named(toy):
    toy.recipe(
        "first: {path: ../x/../nowhere.txt}\nsecond: {path: there.txt, declares: {reads: [no]}}\n"
    )
    toy.write("there.txt", "")
    stages = load_recipe(toy.root).resolve(toy.root).stages
    assert stages["first"].absent() == {
        "files.given": f"first: source 'given' is at {toy.root.parent}/nowhere.txt, and nothing is"
        " there; put it there, or correct the path"
    }
    assert stages["second"].absent() == {
        "reads.no": "second: it reads no, and nothing is there; correct the path"
    }
    assert stages["third"].absent() == {}


def test_what_a_part_reads_is_declared_for_its_stage(tmp_path):
    environment = "environment: {kind: corpus, file: notes.jsonl}"
    (tmp_path / "recipe.yaml").write_text(
        f"flow: flows.play\nrl: {{producer: {{kind: episodes, {environment}}}}}\n"
        f"evaluate: {{{environment}, declares: {{reads: [more.txt]}}}}\n"
    )
    stages = load_recipe(tmp_path).resolve(tmp_path).stages
    read = {
        name: sorted(role for role in stage.inputs if role.startswith("reads."))
        for name, stage in stages.items()
    }
    assert read["rl"] == ["reads.notes.jsonl"]
    assert read["evaluate"] == ["reads.more.txt", "reads.notes.jsonl"]
    assert read["sft"] == []
    assert stages["rl"].absent() == {
        "reads.notes.jsonl": "rl: it reads notes.jsonl, and nothing is there; correct the path"
    }


def test_a_file_that_a_package_ships_is_found_from_any_folder(tmp_path):
    """Under the name that a method gives it, so that a stage's key is the same everywhere."""
    name = "posttrain.methods:blocks.tsv"
    environment = f"environment: {{kind: corpus, file: '{name}'}}"
    (tmp_path / "recipe.yaml").write_text(
        f"flow: flows.play\nrl: {{draw: {{sampler: uniform}}}}\nevaluate: {{{environment}}}\n"
    )
    recipe = load_recipe(tmp_path)
    dag = recipe.resolve(tmp_path)
    stage = dag.stages["evaluate"]
    here = Path(__file__).parents[2] / "posttrain" / "methods" / "blocks.tsv"
    assert stage.inputs[f"reads.{name}"].path == here == Path(shipped_path(name))
    assert stage.absent() == {}
    # Where the package lies is this machine's alone, and no file of DVC's says it.
    code = CodeClosure({}, frozenset(), frozenset(), {}, "")
    closures = dict.fromkeys(dag.stages, code)
    entries = stage_entries(recipe, dag, Workspace(tmp_path, tmp_path), closures)
    deps = next(each.deps for each in entries if each.name == "evaluate")
    assert deps
    assert not [each for each in deps if each.endswith("blocks.tsv")]
    for missing in ("no_such_package:x.csv", "no_such.package:x.csv"):
        with pytest.raises(UserError, match=f"{missing}: no package is called 'no_such"):
            shipped_path(missing)
    assert shipped_path("C:/theirs.csv") == "C:/theirs.csv"


def test_missing_recipe(tmp_path):
    with pytest.raises(UserError, match="there is no recipe at"):
        load_recipe(tmp_path)
