"""Stages that stand several times: lists, rounds, stages that a recipe adds, ports unplugged."""

import json

import pytest
from ruamel.yaml import YAML

from posttrain.methods.lay import laid_over
from posttrain.pipeline.recipe import load_recipe
from posttrain.pipeline.recipe_rewrites import LEFT_OUT
from posttrain.stage.errors import UserError
from posttrain.stage.seeds import derived_seed

ROUNDS = """
from PACKAGE import TASK
def declare(build):
    start = build.stage("first", TASK)
    def body(round, before):
        added = round.stage("add", TASK, source=before)
        if round.has("extra"):
            added = round.stage("extra", TASK, source=added["result"])
        return added["result"]
    last = build.rounds(3, body, start["result"])
    build.stage("end", TASK, source=last)
"""


@pytest.fixture
def rounds(toy):
    """The toy project with a flow of three rounds."""
    flow = toy.write("toyrounds.py", ROUNDS.replace("PACKAGE", toy.package))
    name = flow.with_name(f"{toy.package}_rounds.py")
    flow.rename(name)
    toy.flow = name.stem
    return toy


def wiring(toy, recipe, *overrides):
    """What each stage reads, as {stage: {port: stage.output}}."""
    toy.recipe(recipe)
    dag = load_recipe(toy.root, overrides).resolve(toy.root)
    return {
        name: {port: str(ref) for port, ref in stage.inputs.items()}
        for name, stage in dag.stages.items()
    }


def amounts(toy, recipe, *overrides):
    """The parameter of each stage."""
    toy.recipe(recipe)
    dag = load_recipe(toy.root, overrides).resolve(toy.root)
    return {name: stage.config.amount for name, stage in dag.stages.items()}


def refused(toy, recipe, *overrides):
    """The sentence with which a recipe is refused."""
    toy.recipe(recipe)
    with pytest.raises(UserError) as caught:
        load_recipe(toy.root, overrides).resolve(toy.root)
    assert not (toy.root / ".posttrain").exists()
    return str(caught.value).partition("recipe.yaml: ")[2] or str(caught.value)


LIST = """
second:
- {amount: 2}
- {as: again, amount: 5, inputs: {source: third.result}}
"""


def test_a_list_makes_a_stage_of_each_entry_wired_as_the_first_unless_it_says_otherwise(toy):
    assert wiring(toy, LIST) == {
        "first": {},
        "second": {"source": "first.result"},
        "third": {"source": "second.result"},
        "again": {"source": "third.result"},
    }
    assert amounts(toy, LIST) == {"first": 1, "second": 2, "third": 1, "again": 5}
    beside = "second: [{}, {as: again}]\n"
    assert wiring(toy, beside)["again"] == {"source": "first.result"}


def test_parameters_of_an_entry_are_set_by_its_name(toy):
    assert amounts(toy, LIST, "again.amount=7", "second.amount=3") == {
        "first": 1,
        "second": 3,
        "third": 1,
        "again": 7,
    }


@pytest.mark.parametrize(
    ("recipe", "sentence"),
    [
        ("second: []", "'second' is a list of no stages; leave it out"),
        ("second: [{}, {}]", "second, entry 2: name the stage, such as by as: second_again"),
        (
            "second: [{as: other}]",
            "second, entry 1: the first is the flow's own 'second'; leave `as` out",
        ),
        ("second: [{}, {as: second}]", "two stages are called 'second'; rename one"),
        ("second: [{}, {as: again}]\nagain: {}", "two stages are called 'again'; rename one"),
        ("second: [{}, {as: x.y}]", "second, entry 2: 'x.y' is no name of a stage; take"),
        ("second: [{}, {as: run}]", "second, entry 2: 'run' is no name of a stage; take"),
        ("second: [{}, 3]", "section 'second, entry 2' must be a mapping of parameters, got 3"),
        ("again: {repeats: secnd}", "again: repeats: the flow has no stage 'secnd'; did you mean"),
        ("again: {repeats: first, task: x}", "again: it has a task of its own or repeats a stage"),
        ("more: {task: tasks.prob}", "more.task: there is no task 'tasks.prob'; did you mean 'tas"),
        ("more: {task: a..b}", "more.task: there is no task 'a..b'"),
        ("more: {task: json}", "more.task: there is no task 'json'"),
        ("more: {amount: 3}", "unknown section 'more'"),
        ("rounds: 2", "rounds: "),
        ("rounds: 0", "rounds: must be a whole number of at least 1, got 0"),
        ("rounds: true", "rounds: must be a whole number of at least 1, got True"),
    ],
)
def test_what_is_no_stage_is_refused_in_a_sentence(toy, recipe, sentence):
    assert refused(toy, recipe + "\n").startswith(sentence)


def test_a_recipe_adds_a_stage_of_any_task_to_its_flow(toy):
    recipe = f"more: {{task: {toy.package}, amount: 4, inputs: {{source: first.result}}}}\n"
    assert wiring(toy, recipe)["more"] == {"source": "first.result"}
    assert amounts(toy, recipe)["more"] == 4
    assert list(wiring(toy, recipe)).index("more") > 0
    shipped = f"more: {{task: tasks.import_model, name: hub/x, revision: {'a' * 40}}}\n"
    assert wiring(toy, shipped)["more"] == {}


def test_an_added_stage_is_checked_like_one_of_the_flow(toy):
    assert "more.amont: unknown key" in refused(toy, f"more: {{task: {toy.package}, amont: 4}}\n")
    assert "input 'policy'" in refused(toy, "more: {task: tasks.probe}\n")


def test_a_null_unplugs_an_optional_port_and_is_refused_for_one_that_is_needed(toy):
    assert wiring(toy, "third: {inputs: {source: null}}\n")["third"] == {}
    probe = "more: {task: tasks.probe, inputs: {policy: null}}\n"
    assert refused(toy, probe).startswith(
        "more.inputs.policy: tasks.probe cannot do without it (policy to sample from); write"
    )
    assert "no such input; did you mean 'source'?" in refused(
        toy, "third: {inputs: {sorce: null}}\n"
    )


def test_one_name_of_a_port_for_many_is_unplugged_or_all(toy, tmp_path):
    (tmp_path / "text").write_text("x")
    given = f"third: {{path: {tmp_path / 'text'}, inputs: {{%s: null}}}}\n"
    assert "files.given" in wiring(toy, given % "source")["third"]
    for port in ("files", "files.given"):
        assert wiring(toy, given % port)["third"] == {"source": "second.result"}
    assert "nothing of that name is connected" in refused(toy, given % "files.givn")


def test_rounds_are_unrolled_into_stages_of_their_own(rounds):
    assert wiring(rounds, "") == {
        "first": {},
        "add_1": {"source": "first.result"},
        "add_2": {"source": "add_1.result"},
        "add_3": {"source": "add_2.result"},
        "end": {"source": "add_3.result"},
    }


def test_a_recipe_says_how_many_rounds_there_are(rounds):
    assert list(wiring(rounds, "rounds: 1\n")) == ["first", "add_1", "end"]
    assert list(wiring(rounds, "", "rounds=2")) == ["first", "add_1", "add_2", "end"]


def test_one_section_is_for_all_rounds_and_one_says_otherwise_for_a_round(rounds):
    recipe = "add: {amount: 3, label: all}\nadd_2: {amount: 4}\n"
    assert amounts(rounds, recipe) == {"first": 1, "add_1": 3, "add_2": 4, "add_3": 3, "end": 1}
    dag = load_recipe(rounds.root).resolve(rounds.root)
    assert dag.stages["add_2"].config.label == "all"
    assert "unknown section 'add_4'; did you mean" in refused(rounds, "add_4: {}\n")


def test_what_a_round_leaves_out_is_as_the_section_of_all_rounds_says(rounds, monkeypatch):
    """An empty section of an old format says nothing, so that it cannot go before that one."""

    def state(section, name):
        if "amount" not in section:
            section["amount"] = 9
            yield f"{name}.amount, left out, is 9"

    monkeypatch.setitem(LEFT_OUT, rounds.package, state)
    recipe = "format: 2\nadd: {amount: 3}\nadd_2: {amount: 4}\n"
    assert amounts(rounds, recipe) == {"first": 9, "add_1": 3, "add_2": 4, "add_3": 3, "end": 9}


def test_a_round_has_a_section_of_its_own_or_one_for_all(rounds):
    assert [name for name in wiring(rounds, "extra_2: {}\n") if "extra" in name] == ["extra_2"]
    assert [name for name in wiring(rounds, "extra: {}\n") if "extra" in name] == [
        "extra_1",
        "extra_2",
        "extra_3",
    ]


def test_a_list_within_rounds_repeats_the_stage_in_each(rounds):
    wired = wiring(rounds, "rounds: 2\nadd: [{}, {as: beside, amount: 2}]\nbeside_2: {amount: 9}\n")
    assert wired["beside_1"] == {"source": "first.result"}
    assert wired["beside_2"] == {"source": "add_1.result"}
    found = amounts(
        rounds, "rounds: 2\nadd: [{}, {as: beside, amount: 2}]\nbeside_2: {amount: 9}\n"
    )
    assert (found["beside_1"], found["beside_2"]) == (2, 9)


CHAINED = {
    "a list": LIST,
    "a stage added": "more: {task: PACKAGE, amount: 4, inputs: {source: first.result}}\n",
    "unplugged": "third: {inputs: {source: null}, declares: {environment: HOME}}\n",
}
IN_ROUNDS = {
    "rounds": "rounds: 2\nadd: {amount: 3}\nadd_2: {amount: 4}\n",
    "a list in rounds": "rounds: 2\nadd: [{}, {as: beside, amount: 2}]\n",
}


def loads_again_as_it_was(toy, recipe):
    toy.recipe(recipe.replace("PACKAGE", toy.package))
    recipe = load_recipe(toy.root)
    dag = recipe.resolve(toy.root)
    file = toy.root / "params.yaml"
    with file.open("w") as stream:
        YAML(typ="safe").dump(json.loads(json.dumps(recipe.resolved(dag), default=str)), stream)
    again = load_recipe(file)
    found = again.resolve(toy.root)
    assert {n: (s.config, s.inputs, s.task) for n, s in found.stages.items()} == {
        n: (s.config, s.inputs, s.task) for n, s in dag.stages.items()
    }
    assert again.resolved(found) == recipe.resolved(dag)


@pytest.mark.parametrize("recipe", CHAINED.values(), ids=CHAINED)
def test_the_resolved_recipe_declares_the_same_stages(toy, recipe):
    loads_again_as_it_was(toy, recipe)


@pytest.mark.parametrize("recipe", IN_ROUNDS.values(), ids=IN_ROUNDS)
def test_the_resolved_rounds_declare_the_same_stages(rounds, recipe):
    loads_again_as_it_was(rounds, recipe)


def test_repeated_and_added_stages_run_in_their_order_and_are_cached(toy):
    toy.recipe(LIST + f"more: {{task: {toy.package}, inputs: {{source: again.result}}}}\n")
    ran = toy.run()
    assert {name: run.metrics["sum"] for name, run in ran.items()} == {
        "first": 1.0,
        "second": 3.0,
        "third": 4.0,
        "again": 9.0,
        "more": 10.0,
    }
    assert toy.run() == {}
    plan = toy.plan("again.amount=6")
    assert {name for name, decision in plan.items() if decision.action != "cached"} == {
        "again",
        "more",
    }
    assert any("again.amount" in r or "amount" in r for r in plan["again"].reasons)
    generated = YAML(typ="safe").load((toy.root / "dvc.yaml").read_text())["stages"]
    assert "data/third/result.json" in generated["again"]["deps"]
    assert generated["again"]["cmd"] == "python -m posttrain stage run again"


def test_a_repeated_stage_has_a_seed_of_its_own(toy):
    toy.recipe(LIST)
    ran = toy.run()
    seeds = {name: run.components["runtime"]["stage_seed"] for name, run in ran.items()}
    assert seeds["again"] == str(derived_seed(0, "again")) != seeds["second"]


# Two runs in processes of their own, and the fork server of each.
@pytest.mark.slow
def test_a_stage_of_dvc_runs_what_the_recipe_adds(toy):
    toy.recipe(LIST)
    toy.run()
    done = toy.cli("stage", "run", "again")
    assert done.returncode == 0, done.stderr
    assert json.loads((toy.root / "data/again/result.json").read_text()) == {"sum": 9}


def test_a_part_of_another_kind_takes_the_place_of_the_lower_one():
    under = {"a": {"kind": "x", "n": 1}, "b": {"p": 1, "q": {"r": 1, "s": 2}}, "c": 1}
    over = {"a": {"kind": "y"}, "b": {"q": {"s": 3}}, "c": None, "d": {}}
    assert laid_over(under, over) == {
        "a": {"kind": "y"},
        "b": {"p": 1, "q": {"r": 1, "s": 3}},
        "c": None,
        "d": {},
    }
    assert laid_over({"a": {"kind": "x", "n": 1}}, {"a": {"n": 2}}) == {"a": {"kind": "x", "n": 2}}
    assert under["b"]["q"] == {"r": 1, "s": 2}
