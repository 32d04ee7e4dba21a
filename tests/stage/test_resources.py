"""What a stage is given to run on: where it is said, who may have it, and what it changes."""

import pytest

from posttrain.pipeline.recipe import load_recipe
from posttrain.provenance.key import checkpoints_digest
from posttrain.stage.config import StageConfig
from posttrain.stage.errors import UserError


@pytest.fixture
def project(toy):
    """The toy's task, as one whose steps several processes can share."""
    declared = toy.root / toy.package / "__init__.py"
    text = declared.read_text()
    assert '"the sum")})' in text
    declared.write_text(text.replace('"the sum")})', '"the sum")}, parallel=True)'))
    return toy


def processes(toy, recipe):
    toy.recipe(recipe)
    stages = load_recipe(toy.root).resolve(toy.root).stages.values()
    return [stage.resources.processes for stage in stages]


def test_a_section_goes_before_the_run_and_the_run_before_the_default(project):
    assert processes(project, "") == [1, 1, 1]
    assert processes(project, "second: {resources: {processes: 2}}") == [1, 2, 1]
    everywhere = "run: {threads: 1, resources: {processes: 3}}\nsecond: {resources: {processes: 1}}"
    assert processes(project, everywhere) == [3, 1, 3]


def test_stages_that_cannot_share_steps_are_left_out_of_the_runs_and_refuse_their_own(toy):
    assert processes(toy, "run: {threads: 1, resources: {processes: 3}}") == [1, 1, 1]
    with pytest.raises(UserError, match=r"second.resources.processes: .* works in one process"):
        processes(toy, "second: {resources: {processes: 2}}")


def test_what_several_processes_cannot_share_is_refused_by_the_plan(project, monkeypatch):
    says = "it needs one; leave it out"
    monkeypatch.setattr(StageConfig, "beyond_processes", lambda _, n: says if n > 1 else None)
    assert processes(project, "") == [1, 1, 1]
    with pytest.raises(UserError) as caught:
        processes(project, "second: {resources: {processes: 2}}")
    assert str(caught.value) == "second: it needs one; leave it out"


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("{processes: 0}", "second.resources.processes: input should be greater than or equal"),
        ("{proceses: 2}", "second.resources.proceses: unknown key; did you mean 'processes'"),
        ("2", "section 'second.resources' must be a mapping"),
    ],
)
def test_mistakes_are_told_in_a_sentence(project, given, sentence):
    with pytest.raises(UserError) as caught:
        processes(project, f"second: {{resources: {given}}}")
    assert sentence in str(caught.value)


def test_the_number_of_processes_is_in_the_key_and_one_is_as_if_nothing_were_said(project):
    project.recipe("")
    plain = project.plan()["first"].key
    project.recipe("first: {resources: {processes: 1}}")
    assert project.plan()["first"].key == plain
    project.recipe("first: {resources: {processes: 2}}")
    shared = project.plan()["first"].key
    assert shared.components["runtime"].pop("processes") == "2"
    assert shared.components == plain.components
    assert shared.digest != plain.digest


def test_checkpoints_of_any_number_of_processes_lie_in_one_place(project):
    keys = []
    for number in (1, 2, 3):
        project.recipe(f"first: {{resources: {{processes: {number}}}}}")
        keys.append(project.plan()["first"].key)
    assert len({key.digest for key in keys}) == 3
    assert {checkpoints_digest(key.components) for key in keys} == {keys[0].digest}
    project.recipe("first: {amount: 2}")
    other = project.plan()["first"].key
    assert checkpoints_digest(other.components) != keys[0].digest


def test_the_generated_parameters_say_it_and_give_the_same_dag(project):
    project.recipe("second: {resources: {processes: 2}}")
    recipe = load_recipe(project.root)
    dag = recipe.resolve(project.root)
    resolved = recipe.resolved(dag)
    assert resolved["second"]["resources"] == {**resolved["run"]["resources"], "processes": 2}
    assert "resources" not in resolved["first"]
