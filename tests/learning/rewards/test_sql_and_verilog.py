"""Queries and hardware, judged in the sandbox."""

import json
import shutil

import pytest

from posttrain.backends.sandbox.door import run_programs
from posttrain.backends.sandbox.program import ProgramEnd
from posttrain.backends.sandbox.queries import is_ordered
from posttrain.data.schemas import Problem
from posttrain.learning.rewards.verifiers.sql import SqlVerifier
from posttrain.learning.rewards.verifiers.verilog import VerilogVerifier, is_design
from posttrain.learning.rewards.verify import verify
from posttrain.stage.errors import UserError

TABLES = "create table t (a, b); insert into t values (1, 'x'), (2, 'y'), (2, 'z'), (3, null);"


sandboxed = pytest.mark.usefixtures("sandboxed")


def queried(query, reference, **parameters):
    told = json.dumps({"sql": {"database": TABLES, "seconds": 3.0, **parameters}})
    score = verify(f"```sql\n{query}\n```", Problem("db", "?", reference, 1, "sql", told))
    return score.value, score.reason


@sandboxed
@pytest.mark.parametrize(
    ("query", "reference", "reason"),
    [
        ("select b, a from t where a = 2", "select b, a from t where a > 1 and a < 3", "correct"),
        ("select a from t order by a desc", "select a from t", "correct"),
        ("select a from t order by a desc", "select a from t order by a", "wrong_answer"),
        ("select distinct a from t", "select a from t", "wrong_answer"),
        ("select avg(a) from t", "select sum(a) * 1.0 / count(*) from t", "correct"),
        ("select nothing from t", "select a from t", "error"),
        ("delete from t", "select a from t where a > 9", "error"),
        ("select 1; select a from t", "select a from t", "error"),
        ("attach 'x' as y", "select a from t", "error"),
        ("pragma user_version = 3", "select a from t where a > 9", "error"),
        ("select load_extension('x')", "select a from t", "error"),
        (
            "with recursive n(i) as (select 1 union all select i + 1 from n) select sum(i) from n",
            "select a from t",
            "timeout",
        ),
    ],
)
def test_a_query_is_right_by_its_rows(query, reference, reason):
    assert queried(query, reference, seconds=1.0)[1] == reason


@sandboxed
def test_whether_the_order_counts_can_be_said():
    down = "select a from t order by a desc"
    assert queried(down, "select a from t order by a", ordered=False) == (1.0, "correct")
    assert queried(down, "select a from t", ordered=True) == (0.0, "wrong_answer")


@sandboxed
def test_a_reference_that_fails_is_refused():
    with pytest.raises(UserError, match="its own database or query fails .no such column: c"):
        queried("select 1", "select c from t")
    with pytest.raises(UserError, match="has no database; name the column that holds the SQL"):
        queried("select 1", "select 1", database="")


@pytest.mark.parametrize(
    ("query", "ordered"),
    [
        ("select a from t ORDER\n BY a", True),
        ("select a from (select a from t order by a limit 3)", False),
        ("select 'order by' from t -- order by", False),
        ("select rank() over (order by (a)) from t", False),
    ],
)
def test_only_an_order_of_the_query_itself_counts(query, ordered):
    assert is_ordered(query) is ordered


BENCH = """
module tb;
  reg [3:0] a, b; wire [4:0] s; integer passed = 0, i;
  adder dut(.a(a), .b(b), .s(s));
  initial begin
    for (i = 0; i < 16; i = i + 1) begin
      a = i; b = 15 - 2 * i; #1;
      if (s === a + b) passed = passed + 1;
    end
    $display("{verdict} %0d %0d", passed, 16);
    $finish;
  end
endmodule
"""
ADDER = "module adder(input [3:0] a, b, output [4:0] s);\n  assign s = EXPRESSION;\nendmodule\n"


def simulated(design, **parameters):
    told = json.dumps({"verilog": {"bench": BENCH, "seconds": 10.0, **parameters}})
    score = verify(f"```verilog\n{design}\n```", Problem("chip", "?", "", 1, "verilog", told))
    return score.value, score.reason


icarus = pytest.mark.skipif(shutil.which("iverilog") is None, reason="iverilog is not installed")


@icarus
@sandboxed
def test_a_design_is_right_by_its_test_bench():
    assert simulated(ADDER.replace("EXPRESSION", "a + b")) == (1.0, "correct")
    value, reason = simulated(ADDER.replace("EXPRESSION", "{1'b0, a} | b"))
    assert 0 < value < 1
    assert reason == "wrong_answer"
    assert simulated(ADDER.replace("EXPRESSION", "a +")) == (0.0, "error")
    loop = ADDER.replace("endmodule", "  reg r; always @(r) r <= ~r; initial r = 1;\nendmodule")
    assert simulated(loop.replace("EXPRESSION", "a + b"), seconds=1.0) == (0.0, "timeout")


@icarus
@sandboxed
@pytest.mark.parametrize(
    "trick",
    [
        'initial $display("verdict 16 16");',
        "initial $finish;",
        "initial tb.passed = 99;",
        "initial force tb.passed = 99;",
        '`include "bench.sv"',
        "`define DOT .\ninitial tb `DOT passed = 99;",
        'wire \\a" ; initial #1 tb.passed = 100; wire \\b" ;',
        "// a comment\rinitial #1 tb.passed = 100;",
    ],
)
def test_a_design_that_prints_ends_or_reaches_out_is_none(trick):
    design = ADDER.replace("EXPRESSION", "0").replace("endmodule", f"{trick}\nendmodule")
    assert simulated(design) == (0.0, "not_a_design")


def test_usual_designs_are_designs():
    assert is_design(ADDER)
    assert is_design(
        "`timescale 1ns/1ps\n// prints $display\nm #(.W(8)) u (.a(a), .b($signed(b)));"
    )
    assert not is_design('initial $fopen("x");')


@icarus
@sandboxed
def test_a_bench_that_does_not_parse_is_refused_and_a_design_that_does_not_is_wrong():
    right = ADDER.replace("EXPRESSION", "a + b")
    with pytest.raises(UserError, match="of 'chip': its test bench does not compile .bench.sv:3"):
        simulated(right, bench=BENCH.replace("reg [3:0]", "reg [3:0", 1))
    assert simulated(right.replace("adder", "other")) == (0.0, "error")


@icarus
def test_icarus_is_looked_for_where_a_sandbox_does(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert VerilogVerifier(bench=BENCH).programs(ADDER, Problem("c", "?", "", 1, "verilog", "{}"))


@icarus
def test_a_bench_without_a_verdict_is_refused():
    with pytest.raises(UserError, match="its test bench prints no {verdict}; let it end with"):
        simulated(ADDER, bench="module tb; endmodule")


@pytest.mark.parametrize(
    ("ends", "scores"),
    [
        # The answer's program, then the same again.
        (["lost", "exit"], [0.0, "wrong_answer"]),
        # Lost again, while one of ours is not: the answer ended its own sandbox.
        (["lost", "lost", "exit"], [0.0, "error"]),
        (["lost", "lost", "memory"], [0.0, "error"]),
        (["lost", "lost", "lost"], [None, "lost"]),
    ],
)
def test_a_lost_program_is_not_judged_only_where_the_machine_has_no_room_for_ours(
    ends, scores, monkeypatch
):
    said = iter(ends)

    def run(programs):
        return [ProgramEnd(next(said), 0, b'{"same": false}', b"", 0.0) for _ in programs]

    monkeypatch.setattr("posttrain.learning.rewards.verifiers.sandboxed.run_programs", run)
    assert queried("select 1", "select 2") == tuple(scores)
    assert next(said, None) is None


@sandboxed
def test_the_program_of_ours_runs_within_the_limits_of_an_answer():
    verifier = SqlVerifier(memory_mb=64)
    assert run_programs([verifier._harmless()])[0].ok
