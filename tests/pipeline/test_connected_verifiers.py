"""Verifiers go with the problems of the stage that made them, or the plan says what to do."""

import pytest

from posttrain.data.schemas import PROBLEMS, Problem, problems_table
from posttrain.data.source_verifiers import read_scored_problems
from posttrain.data.tables import write_table
from posttrain.pipeline.connected_verifiers import (
    connect_verifiers,
    verifiers_beside,
    with_remedy,
    without_port,
)
from posttrain.pipeline.execution.session import open_session
from posttrain.stage.config import StageConfig
from posttrain.stage.errors import UserError
from posttrain.stage.spec import ArtifactKind, Dag, Port, Stage, Task

KIND, VERIFIERS = ArtifactKind.PROBLEMS, ArtifactKind.VERIFIERS
ROWS, MANY = Port(KIND, "rows"), Port(KIND, "rows", many=True, optional=True)
MAKE = Task(
    "tasks.make",
    StageConfig,
    {},
    {"problems": ROWS, "heldout": ROWS, "verifiers": Port(VERIFIERS, "")},
)
CHOOSE = Task("tasks.choose", StageConfig, {"heldout": ROWS, "problems": ROWS}, {"problems": ROWS})
MERGE = Task("tasks.merge", StageConfig, {"parts": MANY}, {"problems": ROWS})
SCORE = Task(
    "tasks.score",
    StageConfig,
    {"problems": ROWS, "verifiers": Port(VERIFIERS, "", optional=True)},
    {},
)
OLD = Task("tasks.old", StageConfig, {"problems": ROWS}, {})


@pytest.fixture
def dag():
    """Problems of two stages, those of the first chosen with the held-out ones of the other."""
    dag = Dag()
    one, two = (dag.add(Stage(name, MAKE, StageConfig(), {})) for name in ("one", "two"))
    inputs = {"heldout": two["heldout"], "problems": one["problems"]}
    chosen = dag.add(Stage("chosen", CHOOSE, StageConfig(), inputs))
    parts = {"parts.a": chosen["problems"], "parts.b": two["problems"]}
    dag.add(Stage("merged", MERGE, StageConfig(), parts))
    return dag


def scoring(dag, source, task=SCORE, **more):
    stage = Stage(
        "score", task, StageConfig(), {"problems": dag.stages[source]["problems"], **more}
    )
    return dag.add(stage)


@pytest.mark.parametrize(("source", "maker"), [("one", "one"), ("two", "two"), ("chosen", "one")])
def test_each_table_has_the_verifiers_of_the_stage_that_made_it(dag, source, maker):
    """Also where held-out problems of another stage were looked at to choose them."""
    scoring(dag, source)
    connect_verifiers(dag)
    assert dag.stages["score"].inputs["verifiers"] == dag.stages[maker]["verifiers"]


def test_problems_of_two_stages_are_refused_until_somebody_says_whose_verifiers_count(dag):
    scoring(dag, "merged")
    with pytest.raises(UserError) as error:
        connect_verifiers(dag)
    assert str(error.value) == (
        "score.inputs.verifiers: its problems were made by one and two, each with verifiers of its"
        " own, and a stage reads one table of them; make the problems in one stage, with the"
        " sources of both"
    )
    del dag.stages["score"]
    scoring(dag, "merged", verifiers=dag.stages["two"]["verifiers"])
    connect_verifiers(dag)
    assert dag.stages["score"].inputs["verifiers"] == dag.stages["two"]["verifiers"]


SCORER = """
from posttrain.stage.config import StageConfig
from posttrain.stage.spec import ArtifactKind, Port, Task
PROBLEMS = {"problems": Port(ArtifactKind.PROBLEMS, "")}
TASK = Task("scorer", StageConfig, PROBLEMS, {"report": Port(ArtifactKind.REPORT, "")})
"""
SCORES = """
from posttrain.learning.rewards.verify import verify
def run(config, inputs, outputs, context):
    return {"score": verify("", inputs).value}
"""
FLOW = """
from scorer import TASK
from tasks.synthesize import TASK as SYNTHESIZE
def declare(build):
    build.stage("score", TASK, problems=build.stage("synthesize", SYNTHESIZE)["problems"])
"""


MAKER = """
from posttrain.stage.config import StageConfig
from posttrain.stage.spec import ArtifactKind, Port, Task
MADE = {"problems": Port(ArtifactKind.PROBLEMS, ""), "verifiers": Port(ArtifactKind.VERIFIERS, "")}
TASK = Task("maker", StageConfig, {}, MADE)
"""
MAKES = """
from posttrain.data.schemas import PROBLEMS, Problem, problems_table
from posttrain.data.source_verifiers import write_verifiers
from posttrain.data.tables import write_table
from posttrain.learning.rewards.verifiers.exact import ExactVerifier
def run(config, inputs, outputs, context):
    write_table(problems_table([Problem("s", "p", "1", 1, "")]), outputs["problems"], PROBLEMS)
    write_verifiers(outputs["verifiers"], {"s": ExactVerifier()})
"""
READS = """
from posttrain.data.source_verifiers import read_scored_problems
def run(config, inputs, outputs, context):
    read_scored_problems(inputs["problems"], None)
"""


@pytest.mark.slow
def test_a_run_that_fails_without_the_port_says_what_to_add(toy):
    toy.write("scorer/__init__.py", SCORER)
    toy.write("scorer/stage.py", READS)
    toy.write("maker/__init__.py", MAKER)
    toy.write("maker/stage.py", MAKES)
    toy.write("scoring.py", FLOW.replace("tasks.synthesize", "maker"))
    toy.recipe("flow: scoring\n")
    done = toy.cli("run", "--local")
    assert done.returncode == 2
    assert "name no verifier, and scorer has no port for synthesize.verifiers" in done.stderr


@pytest.mark.slow
def test_a_table_of_problems_is_a_stages_and_what_its_rows_name_is_recorded_with_it(toy):
    """So no table that reaches a key names a verifier that the ledger does not know of."""
    toy.write("maker/__init__.py", MAKER)
    toy.write("maker/stage.py", MAKES.replace('1, "")', '1, "exact")'))
    toy.write("scorer/__init__.py", SCORER)
    writes = "def run(config, inputs, outputs, context):\n    outputs['report'].write_text('{}')\n"
    toy.write("scorer/stage.py", writes)
    toy.write("scoring.py", FLOW.replace("tasks.synthesize", "maker"))
    toy.recipe("flow: scoring\n")
    made = {each.role: each.digest for each in toy.run()["synthesize"].outputs}
    with open_session(toy.root, ()) as session:
        known = session.ledger.compositions.parts_of([made["problems"]])
    assert [part.path for part in known[made["problems"]]] == ["verifier:exact"]
    toy.recipe("flow: scoring\nscore: {inputs: {problems: rows.parquet}}\n")
    (toy.root / "rows.parquet").touch()
    with pytest.raises(UserError, match="score.inputs.problems: there is no stage 'rows'"):
        toy.plan()


@pytest.mark.slow
def test_the_plan_notes_a_task_that_scores_and_has_no_port(toy):
    toy.write("scorer/__init__.py", SCORER)
    toy.write("scorer/stage.py", SCORES)
    toy.write("scoring.py", FLOW)
    toy.recipe("flow: scoring\n")
    said = toy.cli("plan")
    assert "note: score: it scores answers to problems, and scorer has no port for" in said.stdout
    toy.write("scorer/stage.py", SCORES.replace("verify(", "str(").replace(".value", ""))
    assert "it scores answers" not in toy.cli("plan").stdout


def test_stages_that_read_each_other_come_to_an_end(dag):
    """The circle itself is refused later, by a sentence of its own."""
    inputs = {"problems": dag.stages["chosen"]["problems"], "heldout": dag.stages["one"]["heldout"]}
    dag.stages["chosen"] = Stage("chosen", CHOOSE, StageConfig(), inputs)
    assert verifiers_beside(dag.stages["merged"], dag) == [dag.stages["two"]["verifiers"]]


def test_a_task_without_a_port_for_verifiers_is_told_the_line_to_add(dag, tmp_path):
    path = tmp_path / "problems.parquet"
    write_table(problems_table([Problem("s", "p", "1", 1, "")]), path, PROBLEMS)
    with pytest.raises(UserError) as error:
        read_scored_problems(path, None)
    said = str(error.value)
    old = scoring(dag, "chosen", OLD)
    assert with_remedy(said, old, dag) == (
        f"{path}: 1 problems name no verifier, and tasks.old has no port for one.verifiers, by"
        ' which they are scored; add "verifiers": Port(ArtifactKind.VERIFIERS, "what scores'
        ' problems", optional=True) to its inputs, and read them by'
        ' read_problems(inputs["problems"], inputs.get("verifiers"))'
    )
    assert with_remedy("it broke", old, dag) == "it broke"
    # One that has the port is told to connect it.
    del dag.stages["score"]
    assert with_remedy(said, scoring(dag, "chosen"), dag) == said
    assert without_port(dag.stages["one"], dag) is None
