"""The DAG: order, reach, and the checks on its edges."""

from dataclasses import replace

import pytest

from posttrain.stage.config import StageConfig
from posttrain.stage.errors import UserError
from posttrain.stage.spec import ArtifactKind, Dag, Port, Reference, Stage, Task


class Nothing(StageConfig):
    """No parameters."""


REPORT, TABLE = ArtifactKind.REPORT, ArtifactKind.PROBLEMS
MAKE = Task("make", Nothing, {}, {"table": Port(TABLE, "rows"), "report": Port(REPORT, "facts")})
USE = Task("use", Nothing, {"table": Port(TABLE, "rows")}, {"report": Port(REPORT, "facts")})
JUDGE = Task("judge", Nothing, {"reports": Port(REPORT, "all", many=True)}, {})


def stage(name, task, **inputs):
    return Stage(
        name, task, Nothing(), {key.replace("__", "."): ref for key, ref in inputs.items()}
    )


def dag(*stages):
    made = Dag()
    for item in stages:
        made.add(item)
    return made


def test_outputs_lie_under_the_stage_and_carry_the_suffix_of_their_type():
    paths = {name: str(path) for name, path in stage("a", MAKE).outputs().items()}
    assert paths == {"table": "data/a/table.parquet", "report": "data/a/report.json"}


def test_order_puts_each_stage_after_what_it_reads_and_downstream_follows_edges():
    make = stage("make", MAKE)
    use = stage("use", USE, table=make["table"])
    judge = stage("judge", JUDGE, reports__a=make["report"], reports__b=use["report"])
    other = stage("other", MAKE)
    graph = dag(judge, use, other, make)
    order = graph.order()
    assert order.index("make") < order.index("use") < order.index("judge")
    assert graph.downstream(["use"]) == {"use", "judge"}
    assert graph.downstream(["make"]) == {"make", "use", "judge"}
    assert graph.upstream("judge") == ["make", "use"]


def test_an_edge_between_different_types_is_refused():
    make = stage("make", MAKE)
    use = stage("use", USE, table=make["report"])
    with pytest.raises(
        UserError, match=r"use\.inputs\.table takes problems, but make\.report is report"
    ):
        dag(make, use).check()


def test_an_unconnected_input_is_refused():
    with pytest.raises(UserError, match=r"stage 'use': input 'table' \(rows\) is not connected"):
        dag(stage("use", USE)).check()


def test_an_input_that_the_task_does_not_have_is_refused():
    make = stage("make", MAKE)
    with pytest.raises(UserError, match="has no input 'tabel'; did you mean 'table'"):
        dag(make, stage("use", USE, table=make["table"], tabel=make["table"])).check()


def test_a_port_of_one_or_of_several_says_which_it_is():
    many = replace(USE, inputs={**USE.inputs, "files": Port(TABLE, "files", many=True)})
    make = stage("make", MAKE)
    for name, takes in {
        "files": "several, each by a name: files.NAME; got 'files'",
        "table.one": "one alone; got 'table.one'",
    }.items():
        wired = {"table": make["table"], name: make["table"]}
        with pytest.raises(UserError) as refused:
            dag(make, stage("use", many, **wired)).check()
        assert str(refused.value) == f"stage 'use': its input '{name[:5]}' takes {takes}"


def test_an_unknown_output_names_the_nearest():
    with pytest.raises(UserError, match="has no output 'tables'; did you mean 'table'"):
        stage("make", MAKE)["tables"]


def test_two_stages_of_one_name_are_refused():
    with pytest.raises(UserError, match="two stages are called 'make'"):
        dag(stage("make", MAKE), stage("make", MAKE))


def test_a_cycle_names_its_members():
    first = stage("first", USE, table=Reference(TABLE, stage="second", output="table"))
    second = Stage(
        "second", MAKE, Nothing(), {"x": Reference(REPORT, stage="first", output="report")}
    )
    with pytest.raises(UserError, match="first -> second -> first|second -> first -> second"):
        dag(first, second).order()
