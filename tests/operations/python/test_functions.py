"""`import posttrain as pt` on a small project: what each function gives, and how it looks."""

import json
import signal
import threading
import time
from os import getpid, kill
from pathlib import Path

import pytest

import posttrain as pt
from posttrain.data.schemas import Problem, problems_table
from posttrain.data.tables import write_table

SYNTHESIZE = """
from tasks.synthesize import TASK
def declare(build):
    build.stage("synthesize", TASK)
"""


@pytest.fixture(autouse=True)
def _in_the_project(toy, monkeypatch):
    monkeypatch.chdir(toy.root)
    monkeypatch.setenv("POSTTRAIN_TRACKING", "off")


@pytest.fixture
def problems(toy):
    """Two problems where the stage that makes some would put them."""
    flow = toy.flow.replace("chain", "real")
    (toy.root / "tasks").symlink_to(Path(__file__).parents[3] / "tasks")
    toy.write(f"{flow.replace('.', '/')}.py", SYNTHESIZE)
    toy.recipe(f"flow: {flow}\n")
    rows = [Problem("sums", f"{n}+1=", str(n + 1), n, "exact", "{}") for n in (1, 2)]
    frame = problems_table(rows)
    (toy.root / "data/synthesize").mkdir(parents=True)
    write_table(frame, toy.root / "data/synthesize/problems.parquet", frame.schema)
    return frame


def test_a_plan_says_what_would_run_and_why():
    planned = pt.plan(overrides={"second.amount": 5})
    assert {each.action for each in planned.stages} == {"run"}
    assert planned.to_run == ("first", "second", "third")
    lines = repr(planned).splitlines()
    assert lines[0].startswith("plan of ")
    assert lines[1].split() == ["stage", "action", "last", "took", "why"]
    assert lines[2].split() == ["first", "run", "it", "never", "ran"]
    assert lines[-1] == "3 of 3 stages to run."


def test_what_the_command_prints_of_a_plan_is_what_the_plan_says(toy):
    printed = toy.cli("plan", "--set", "second.amount=5").stdout
    planned = pt.plan(overrides=["second.amount=5"])
    for row in planned.rows(hint=": -v"):
        assert " ".join(filter(None, row)) in [
            " ".join(line.split()) for line in printed.splitlines()
        ]
    assert printed.splitlines()[-1] == planned.closing[-1]


def test_a_notebook_shows_a_plan_as_a_table_whose_texts_are_no_markup(toy):
    toy.run()
    shown = pt.plan(overrides={"second.label": "<b>"})._repr_html_()
    assert shown.count("<tr>") == 4
    assert "&lt;b&gt;" in shown
    assert "<b>&" not in shown.split("<tbody>")[1]


def test_a_run_gives_its_stages_metrics_and_table():
    made = pt.run(overrides={"second.amount": 5}, quiet=True)
    assert [(each.stage, each.status) for each in made.stages] == [
        ("first", "succeeded"), ("second", "succeeded"), ("third", "succeeded"),
    ]  # fmt: skip
    # 1, then 5 more, then 1 more.
    assert made.metrics == {"first/sum": 1.0, "second/sum": 6.0, "third/sum": 7.0}
    assert json.loads(made.stages[-1].outputs["result"].read_text()) == {"sum": 7}
    assert repr(made).splitlines()[0] == f"run {made.run} of {made.recipe}"
    assert "<td" in made._repr_html_()
    again = pt.run(overrides={"second.amount": 5}, quiet=True)
    assert again.run is None
    assert {each.status for each in again.stages} == {"succeeded"}
    assert "up to date" in repr(again)


def test_a_stage_that_fails_raises_with_its_name():
    with pytest.raises(pt.StageFailed, match="stage 'second' failed: .*told to fail"):
        pt.run(overrides={"second.mood": "fail"}, quiet=True)


def test_an_interrupted_run_leaves_this_process_and_goes_on(toy):
    def interrupt():
        while not list(toy.root.glob(".posttrain/scratch/*/waiting")):
            time.sleep(0.01)
        kill(getpid(), signal.SIGINT)
        kill(getpid(), signal.SIGINT)

    heard_by = signal.getsignal(signal.SIGINT)
    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt, match="run the same call again"):
        pt.run(overrides={"second.mood": "wait"}, quiet=True)
    assert signal.getsignal(signal.SIGINT) is heard_by
    latest = pt.metrics()
    assert latest.select("stage", "status").rows() == [("first", "succeeded")]
    assert pt.run(quiet=True).metrics["third/sum"] == 3.0


def test_why_names_the_first_difference_and_every_other_one():
    pt.run(quiet=True)
    found = pt.why("second", overrides={"second.amount": 10, "second.label": "x"})
    assert [each.component for each in found.causes] == ["params", "params"]
    assert found.causes[0].sentence == "parameter amount changed from 1 to 10"
    assert found.causes[0].details[-1] == "now: 10"
    assert repr(found).splitlines()[0].startswith("second will run; compared with run ")
    assert "now: 10" in found._repr_html_()


def test_a_lineage_is_a_tree_here_and_branches_in_a_notebook(toy):
    pt.run(quiet=True)
    graph = pt.lineage("data/third/result.json")
    assert graph.graph.nodes[graph.graph.root].name == "data/third/result.json"
    assert repr(graph) == toy.cli("lineage", "up", "data/third/result.json").stdout.rstrip("\n")
    shown = graph._repr_html_()
    # The root and the stages hold something, but for the first one, which read nothing.
    assert shown.count("<details") == shown.count("</details>") == 5
    assert shown.count("<b>") == 3
    assert graph.to_dict()["direction"] == "up"
    assert graph.save("graph.html").read_text().startswith("<!")
    with pytest.raises(pt.UserError, match="no format has the suffix '.pdf'"):
        graph.save("graph.pdf")
    assert {node.name for node in pt.lineage("first@latest", "down").nodes} >= {"third"}


def test_metrics_of_runs_are_rows():
    first = pt.run(quiet=True).run
    second = pt.run(overrides={"second.amount": 5}, quiet=True).run
    found = pt.metrics(str(first), str(second))
    sums = found.pivot("run", index="stage", values="value")
    assert sums.rows() == [
        ("first", 1.0, 1.0),
        ("second", 2.0, 6.0),
        ("third", 3.0, 7.0),
    ]
    assert found.columns == ["run", "recipe", "stage", "status", "metric", "value"]


def test_two_runs_are_compared(toy):
    pt.run(quiet=True)
    pt.run(overrides={"second.amount": 5}, quiet=True)
    found = pt.compare("latest~1")
    assert [each.stage for each in found.differing] == ["second", "third"]
    assert found.closing == "1 of 3 stages are equal"
    assert ("", "cause", "parameter amount changed from 1 to 5", "") in found.rows()
    assert ("", "sum", "2", "6") in found.rows()
    printed = toy.cli("lineage", "diff", "latest~1", "latest", env={"COLUMNS": "200"}).stdout
    assert all(cell in printed for row in found.rows() for cell in row)


def test_an_artifact_is_loaded_as_it_lies_and_as_a_run_had_it(toy):
    first = pt.run(quiet=True).run
    pt.run(overrides={"second.amount": 5}, quiet=True)
    assert pt.load("second.result", format="json") == {"sum": 6}
    assert pt.load("second.result", run=first, format="json") == {"sum": 2}
    assert pt.load("second.result", format="path") == toy.root / "data/second/result.json"


def test_a_table_is_loaded_in_three_forms(problems):
    assert pt.load("synthesize.problems").equals(problems)
    chosen = pt.load("synthesize.problems", columns=["prompt"], where="difficulty > 1")
    assert chosen.rows() == [("2+1=",)]
    rows = pt.load("synthesize.problems", format="datasets", columns=["prompt", "difficulty"])
    assert rows.to_list() == [
        {"prompt": "1+1=", "difficulty": 1},
        {"prompt": "2+1=", "difficulty": 2},
    ]
    tensors = pt.load("synthesize.problems", format="torch", columns=["difficulty"])
    assert tensors["difficulty"][:].tolist() == [1, 2]
    assert type(tensors[0]["difficulty"]).__name__ == "Tensor"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"name": "second"}, "'second' names no output; write it as STAGE.OUTPUT"),
        ({"name": "secnd.result"}, "there is no stage 'secnd'; did you mean 'second'?"),
        ({"name": "second.reslt"}, "stage 'second' has no output 'reslt'; did you mean 'result'?"),
        ({"name": "second.result"}, "second.result is not there yet; make it, or fetch it"),
        ({"name": "second.result", "run": "latest", "release": "v1.0.0"}, "run and release"),
        ({"name": "second.result", "run": "latest"}, "there is no ledger at .*; run the recipe"),
    ],
)  # fmt: skip
def test_what_cannot_be_loaded_is_said_in_a_sentence(arguments, sentence):
    with pytest.raises(pt.UserError, match=sentence):
        pt.load(**arguments)


def test_forms_and_rows_that_do_not_fit_are_refused(problems):
    with pytest.raises(pt.UserError, match="has no column 'dificulty'; did you mean 'difficulty'"):
        pt.load("synthesize.problems", where="dificulty > 1")
    with pytest.raises(pt.UserError, match="cannot be read as 'json'; give format='polars' or"):
        pt.load("synthesize.problems", format="json")


def test_a_report_is_no_table():
    pt.run(quiet=True)
    with pytest.raises(pt.UserError, match="is a report and cannot be read as 'polars'; give"):
        pt.load("second.result")
    with pytest.raises(pt.UserError, match="is no table; leave out columns and where"):
        pt.load("second.result", format="json", where="a = 1")


def test_sentences_are_those_of_the_command_line(toy):
    said = toy.cli("run", "--set", "second.amont=1")
    assert said.returncode == 2
    with pytest.raises(pt.UserError) as refused:
        pt.run(overrides=["second.amont=1"])
    assert said.stderr.strip() == f"error: {refused.value}"


def test_overrides_that_are_one_text_are_refused():
    with pytest.raises(pt.UserError, match="'second.amount=1' is one text; give a mapping"):
        pt.plan(overrides="second.amount=1")
