"""Methods are found by name: the project's own first; what is wrong in a file is one sentence."""

import re

import pytest

from posttrain.learning.algorithms.presets import PREFERENCE_PRESETS, PRESETS
from posttrain.methods.find import (
    SHIPPED,
    every_method,
    find_method,
    has_method,
    method_names,
    methods_of,
    readable_methods,
)
from posttrain.methods.lay import laid_over
from posttrain.methods.systems import blocks, published_systems
from posttrain.pipeline.recipe_method import sections_of_method
from posttrain.pipeline.recipe_schema import stages_of_flow
from posttrain.stage.errors import UserError

MINE = """
name: {name}
title: Mine
source: {{paper: a note of mine}}
family: {family}
says: It does what I say.
sets: {sets}
"""


@pytest.fixture
def project(tmp_path):
    def write(name, family="pg", sets="{rl: {steps: 9}}", text=MINE, folder="methods"):
        file = tmp_path / folder / family / f"{name}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.format(name=name, family=family, sets=sets))
        return file

    write.root = tmp_path
    return write


def test_every_method_that_ships_resolves_and_is_of_a_system_that_there_is():
    tasks = stages_of_flow("flows.post_training", SHIPPED.parents[1])
    systems = {each.name: each for each in published_systems()}
    found = every_method()
    assert {"default", "grpo", "dapo", "dpo", "simpo"} <= found.keys()
    for name, (method, path) in found.items():
        assert path == SHIPPED / method.family / f"{name}.yaml"
        assert sections_of_method(method, tasks).keys() == method.sets.keys()
        if method.system:
            assert systems[method.system].family == method.family
    assert {*PRESETS, *PREFERENCE_PRESETS} <= found.keys()


def test_the_facts_about_systems_use_one_vocabulary():
    used = {name for each in published_systems() for name in each.lacks}
    assert used == blocks().keys()
    assert {each.kind for each in published_systems()} == {"A", "B"}


def test_a_projects_own_method_goes_first_and_only_while_the_project_is_open(project):
    project("grpo", sets="{rl: {algorithm: {surrogate: {high: 0.9}}}}")
    project("mine", family="len")
    shipped = find_method("grpo").method
    with methods_of(project.root):
        assert find_method("grpo").method.title == "Mine"
        assert PRESETS["grpo"].algorithm.surrogate.high == 0.9
        assert find_method("mine").method.sets == {"rl": {"steps": 9}}
        assert "mine" in method_names()
    assert find_method("grpo").method == shipped
    assert not has_method("mine")


def test_what_an_editor_leaves_is_no_method_and_a_new_file_is_found_at_once(project):
    mine = project("mine")
    mine.with_name(".#mine.yaml").symlink_to("nobody@nowhere")
    with methods_of(project.root):
        assert not any(name.startswith(".") for name in method_names())
        assert readable_methods()[1] == []
        assert not has_method("another")
        project("another")
        assert has_method("another")


def test_a_package_of_a_plug_in_brings_methods(project, monkeypatch):
    project("theirs", folder="plugin_with_methods/methods")
    (project.root / "plugin_with_methods" / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(project.root))
    with methods_of(project.root, ["plugin_with_methods.rewards"]):
        assert find_method("theirs").method.family == "pg"
    assert not has_method("theirs")


def test_a_method_may_change_the_algorithm_of_another(project):
    project("softer", sets="{rl: {algorithm: {preset: dapo, surrogate: {high: 0.4}}}}")
    project("renamed", sets="{rl: {algorithm: softer}}")
    with methods_of(project.root):
        softer = PRESETS["renamed"].algorithm
    assert softer.surrogate.high == 0.4
    assert softer.advantage == PRESETS["dapo"].algorithm.advantage


def test_methods_that_name_each_other_are_refused(project):
    project("one", sets="{rl: {algorithm: other}}")
    project("other", sets="{rl: {algorithm: {preset: one}}}")
    with methods_of(project.root), pytest.raises(UserError, match="name each other as preset"):
        PRESETS["one"]


def test_numbers_are_those_of_yaml_1_2(project):
    project("small", sets="{rl: {optimization: {learning_rate: 5e-4}}}")
    with methods_of(project.root):
        assert find_method("small").method.sets["rl"]["optimization"] == {"learning_rate": 5e-4}


WRONG = {
    "an unknown key": (MINE + "sasy: no\n", r": sasy: unknown key; did you mean 'says'\?"),
    "another name": (MINE.replace("{name}", "other"), r": name: the file's place says 'mine'"),
    "no source": (MINE.replace("a note of mine", "''"), "name the paper or the code"),
    "no family": (MINE.replace("family: {family}", "family: none"), "there is no family 'none'"),
    "no YAML": (MINE + "claims: [", ":9: not valid YAML"),
    "a key that is said twice": (
        MINE + "sets: {{rl: {{steps: 3}}}}\n",
        ":8: .* 'sets' is said twice",
    ),
    "a key that is said twice within": (
        MINE.replace("{sets}", "{{rl: {{steps: 3, steps: 4}}}}"),
        "'steps' is said twice",
    ),
    "runs that settings are tuned on": (
        MINE + "claims: [{{name: a, says: b, arena: sums, against: {{b: {{}}}}, matched: rollouts, "
        "decide: [{{metric: pass_at_1, is: lower, margin: 0}}], seeds: 3, first_seed: 99, "
        "minutes: 1}}]\n",
        "claim a takes runs from 101 on",
    ),
    "a list": ("- {name}\n", "a method is a mapping that starts with 'name:'"),
    "a claim without an arm": (
        MINE
        + "claims: [{{name: a, says: b, arena: sums, against: {{}}, matched: rollouts, decide: "
        "[{{metric: pass_at_1, is: higher, margin: 0.1}}], seeds: 3, minutes: 1}}]\n",
        "against no arm; add one to against",
    ),
    "a margin of nothing": (
        MINE + "claims: [{{name: a, says: b, arena: sums, against: {{b: {{}}}}, matched: rollouts, "
        "decide: [{{metric: pass_at_1, is: equal, margin: 0}}], seeds: 3, minutes: 1}}]\n",
        "equal within a margin of 0 cannot be shown",
    ),
    "a check that cannot fail": (
        MINE + "claims: [{{name: a, says: b, arena: sums, against: {{b: {{}}}}, matched: rollouts, "
        "mechanism: [{{metric: rl/yield}}], "
        "decide: [{{metric: pass_at_1, is: lower, margin: 0}}], seeds: 3, minutes: 1}}]\n",
        "a check without a bound cannot fail",
    ),
}


@pytest.mark.parametrize(("text", "sentence"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_in_a_file_is_one_sentence(project, text, sentence):
    project("mine", text=text)
    with methods_of(project.root), pytest.raises(UserError, match=sentence) as refused:
        find_method("mine")
    assert "\n" not in str(refused.value)


def test_one_name_in_two_families_is_refused(project):
    project("mine")
    project("mine", family="len")
    with methods_of(project.root), pytest.raises(UserError, match="two files say the method"):
        find_method("mine")


def test_a_name_that_is_none_suggests_the_nearest():
    with pytest.raises(UserError, match=re.escape("no method 'gropo'; did you mean 'grpo'?")):
        find_method("gropo")


def test_a_method_of_other_sections_has_no_algorithm_of_rl():
    with pytest.raises(UserError, match=r"the method dpo says no rl\.algorithm"):
        PRESETS["dpo"]


def test_laying_leaves_the_base_and_replaces_what_is_of_another_kind():
    base = {"a": {"kind": "x", "n": 1}, "b": {"n": 1, "m": {"k": 2}}, "c": [1]}
    kept = {"a": {"kind": "x", "n": 1}, "b": {"n": 1, "m": {"k": 2}}, "c": [1]}
    assert laid_over(base, {"a": {"kind": "y"}, "b": {"m": {"k": 3}}, "c": [2], "d": None}) == {
        "a": {"kind": "y"},
        "b": {"n": 1, "m": {"k": 3}},
        "c": [2],
        "d": None,
    }
    assert laid_over(base, {"b": {"preset": "z"}})["b"] == {"preset": "z"}
    assert base == kept


def test_a_method_that_is_like_another_says_what_differs(project):
    project("under", sets="{rl: {group_size: 4, draw: {max_rounds: 3, train_on: signal}}}")
    project("mine", text=MINE + "like: under\n", sets="{rl: {draw: {max_rounds: 1}}}")
    with methods_of(project.root):
        sets = find_method("mine").method.sets
        assert sets == {"rl": {"group_size": 4, "draw": {"max_rounds": 1, "train_on": "signal"}}}
        assert every_method()["mine"].method.sets == sets
        # The file of the other is read anew: a correction there counts here.
        project("under", sets="{rl: {steps: 5}}")
        assert find_method("mine").method.sets["rl"] == {"steps": 5, "draw": {"max_rounds": 1}}


def test_a_circle_of_likenesses_and_one_to_nothing_are_refused(project):
    project("mine", text=MINE + "like: under\n")
    project("under", text=MINE + "like: mine\n")
    with methods_of(project.root):
        with pytest.raises(UserError, match="mine is like under is like mine; break the circle"):
            find_method("mine")
        project("mine", text=MINE + "like: gropo\n")
        with pytest.raises(UserError, match=r"like: there is no method 'gropo'; did you mean"):
            find_method("mine")
