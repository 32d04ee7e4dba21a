"""The code that ran is the code in the key: an edit while a run is under way."""

import json

import pytest

from posttrain.stage.errors import UserError
from tests.quick import first_now

# While the first stage runs, the file `edit` says which file gets which text.
EDITING = """
import json
from pathlib import Path
from HELPER import add
def run(config, inputs, outputs, context):
    here = Path(EDITS) / f"{outputs['result'].parent.name.partition('-')[0]}.json"
    if here.exists():
        for name, text in json.loads(here.read_text()).items():
            Path(name).write_text(text)
        here.unlink()
    total = sum(json.loads(path.read_text())["sum"] for path in inputs.values())
    outputs["result"].write_text(json.dumps({"sum": add(total, config.amount)}))
    return {"sum": 0.0}
"""


@pytest.fixture
def project(toy, tmp_path_factory, monkeypatch):
    """A project whose stages edit a file while they run, as only stages can that are not held."""
    monkeypatch.setattr("posttrain.pipeline.execution.attempt.view_of", lambda *_, **__: None)
    edits = tmp_path_factory.mktemp("edits")
    text = EDITING.replace("HELPER", toy.helper).replace("EDITS", repr(str(edits)))
    toy.write(f"{toy.package}/stage.py", text)
    toy.recipe("first: {amount: 1}\nsecond: {amount: 2}\nthird: {amount: 3}\n")
    toy.helper_file = toy.root / f"{toy.helper.replace('.', '/')}.py"

    def edit_while(stage, text, file=toy.helper_file):
        (edits / f"{stage}.json").write_text(json.dumps({str(file): text}))

    toy.edit_while = edit_while
    return toy


def sums(project):
    return {
        name: json.loads((project.root / f"data/{name}/result.json").read_text())["sum"]
        for name in ("first", "second", "third")
    }


OLD = "def add(a, b):\n    return a + b\n"
NEW = "def add(a, b):\n    return a + 10 * b\n"


@pytest.mark.slow
def test_a_stage_that_is_due_after_an_edit_is_recorded_under_the_new_code(project):
    project.helper_file.write_text(OLD)
    project.run()
    assert sums(project) == {"first": 1, "second": 3, "third": 6}
    before = project.run("first.amount=2")
    assert sums(project) == {"first": 2, "second": 4, "third": 7}
    # A comment while the first stage runs changes nothing.
    project.edit_while("first", f"{OLD}# a word\n")
    made = project.run("first.amount=3")
    assert {run.status for run in made.values()} == {"succeeded"}
    assert sums(project) == {"first": 3, "second": 5, "third": 8}
    assert before["second"].components["code"] == made["second"].components["code"]


def test_what_ran_while_its_code_changed_is_not_published(project):
    project.helper_file.write_text(OLD)
    project.run()
    project.edit_while("second", NEW)
    with pytest.raises(UserError, match=r"stage 'second': its code changed while it ran.*add"):
        project.run("second.amount=4")
    assert sums(project) == {"first": 1, "second": 3, "third": 6}
    made = project.run("second.amount=4")
    assert sums(project)["second"] == sums(project)["first"] + 40
    assert made["second"].status == "succeeded"


def test_an_edit_that_is_taken_back_before_the_end_is_seen_by_what_was_imported(project):
    """The helper is imported only when the stage begins, by when it is another one."""
    project.helper_file.write_text(OLD)
    project.run()
    entry = project.root / f"{project.package}/stage.py"
    text = entry.read_text()
    # The stage's own module edits the helper, imports it, and takes the edit back.
    entry.write_text(
        f"from pathlib import Path\nHERE = Path({str(project.helper_file)!r})\n"
        f"HERE.write_text({NEW!r})\n{text}\nHERE.write_text({OLD!r})\n"
    )
    with pytest.raises(UserError, match="was another one when it was imported"):
        project.run()


@pytest.mark.parametrize("edited", first_now(["given.txt", "data/first/result.json"]))
def test_what_ran_while_an_input_changed_is_not_published(project, edited):
    """A file that the recipe declares, and the output of a stage before."""
    project.write("given.txt", "1")
    recipe = (project.root / "recipe.yaml").read_text()
    (project.root / "recipe.yaml").write_text(f"{recipe}\nreads: [given.txt]\n")
    project.run()
    text = (project.root / edited).read_text()
    project.edit_while("second", '{"sum": 7}', project.root / edited)
    with pytest.raises(UserError, match=f"stage 'second': its input {edited} changed while it ran"):
        project.run("second.amount=4")
    assert sums(project)["second"] == 3
    (project.root / edited).write_text(text)
    assert project.run("second.amount=4")["second"].status == "succeeded"
