"""Verdicts: stored by one stage, and paid by another without asking again; and traces."""

import json
from pathlib import Path
from typing import ClassVar, Literal

import polars as pl
import pytest

from posttrain.data.schemas import (
    COMPLETIONS,
    IDENTITY,
    ROLLOUTS,
    VERDICTS,
    Completion,
    Problem,
    completions_table,
    row_id,
    with_row_ids,
)
from posttrain.data.tables import read_table, write_table
from posttrain.learning.rewards.components.base import Answers, Component, Inquiry
from posttrain.learning.rewards.components.registry import COMPONENTS
from posttrain.learning.rewards.port_tables import PortTables
from posttrain.learning.rewards.verify import VerifierCache
from posttrain.pipeline.stage_keys import INTERFACE
from posttrain.provenance.code import CodeReader
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from posttrain.stage.slots import parts_in
from posttrain.stage.spec import ArtifactKind, Dag, Reference, Stage
from tasks.judge import TASK as JUDGE
from tasks.judge.config import JudgeConfig
from tasks.judge.stage import run as judge
from tasks.rl import TASK as RL
from tasks.rl.config import RlStageConfig
from tasks.rl.stage import run as rl

SHORT = {"kind": "format", "pattern": "#### 1"}
"""Says 1 of the answer 1, whatever is right."""


def written(path, rows):
    write_table(with_row_ids(completions_table(rows), IDENTITY["completions"]), path, COMPLETIONS)
    return path


@pytest.fixture(scope="module")
def verdicts(coins, coins_path, tmp_path_factory):
    """On `#### 1` and `#### 2` for all problems but the last."""
    folder = tmp_path_factory.mktemp("judge")
    rows = [
        Completion(problem, text, "p", None, None, "")
        for problem in coins[:-1]
        for text in ("#### 1", "#### 2", "#### 1")
    ]
    inputs = {"problems": coins_path, "samples": written(folder / "samples.parquet", rows)}
    config = JudgeConfig.parse({"components": {"correct": "verifier", "one": SHORT}}, where="judge")
    outputs = {"verdicts": folder / "verdicts.parquet"}
    metrics = judge(config, inputs, outputs, StageContext.quiet(folder / "scratch"))
    assert metrics == {
        "judge/num_answers": 3.0 * (len(coins) - 1),
        "judge/correct/unjudged": 0.0,
        "judge/one/unjudged": 0.0,
    }
    return outputs["verdicts"]


def test_each_answer_has_one_verdict_of_each_judge(verdicts, coins):
    table = read_table(verdicts, VERDICTS)
    assert len(table) == 2 * 2 * (len(coins) - 1)
    assert table["judge"].n_unique() == 2
    assert {name.partition(".")[0] for name in table["judge"]} == {"exact", "format"}
    first = table.filter(subject=row_id(coins[0].id, "#### 2"))
    right = float(coins[0].answer == "2")
    assert dict(first.select("component", "score").iter_rows()) == {"correct": right, "one": 0.0}


def answers(problem, *texts):
    return Answers(problem, texts, (1,) * len(texts), (False,) * len(texts))


def looked_up(path, group, **settings):
    part = COMPONENTS.parse({"kind": "stored", **settings})
    known = Inquiry(VerifierCache(), tables=PortTables({"verdicts": path}))
    return part.score(group, known)


def test_an_answer_without_a_verdict_is_not_judged(verdicts, coins):
    group = answers(coins[0], "#### 1", "#### 2", "#### 3")
    assert looked_up(verdicts, group, verdict="one") == [1.0, 0.0, None]
    assert looked_up(verdicts, answers(coins[-1], "#### 1"), verdict="one") == [None]


def test_draws_are_averaged_over_those_that_were_judged(verdicts, coins, tmp_path):
    """Of the scores 1, none and 0 the mean is 1/2; of none alone there is none."""
    one = read_table(verdicts, VERDICTS).filter(component="one").head(1)
    other = one.with_columns(subject=pl.lit(row_id(coins[0].id, "#### 9")), score=None)
    draws = enumerate((1.0, None, 0.0))
    rows = [one.with_columns(draw=pl.lit(n, pl.Int32), score=score) for n, score in draws]
    table = pl.concat([*rows, other]).cast(VERDICTS)
    write_table(with_row_ids(table, IDENTITY["verdicts"]), tmp_path / "v.parquet", VERDICTS)
    group = answers(coins[0], "#### 1", "#### 9")
    assert looked_up(tmp_path / "v.parquet", group, verdict="one") == [0.5, None]


def test_what_the_table_does_not_say_is_refused_with_what_it_does(verdicts, coins, tmp_path):
    group = answers(coins[0], "#### 1")
    with pytest.raises(UserError, match="no verdicts called 'ona'; did you mean 'one'"):
        looked_up(verdicts, group, verdict="ona")
    with pytest.raises(UserError, match="judge nobody gave no verdict called 'one'"):
        looked_up(verdicts, group, verdict="one", judge="nobody")
    with pytest.raises(UserError, match="a stored verdict called 'one' is 1, which is not from 0"):
        looked_up(verdicts, group, verdict="one", most=0.5)
    table = read_table(verdicts, VERDICTS)
    two = pl.concat([table, table.with_columns(judge=pl.lit("other"))])
    write_table(with_row_ids(two, IDENTITY["verdicts"]), tmp_path / "v.parquet", VERDICTS)
    with pytest.raises(
        UserError, match="'one' on one answer are of 2 judges .*; set the component's `judge`"
    ):
        looked_up(tmp_path / "v.parquet", group, verdict="one")
    assert looked_up(tmp_path / "v.parquet", group, verdict="one", judge="other") == [1.0]


def test_problems_of_one_source_have_one_judge_and_of_two_sources_may_have_two(verdicts, coins):
    """What the row says beside the source, such as its tests, is a part of the problem."""
    part = COMPONENTS.parse("verifier")
    tests = [json.dumps({"python_tests": {"tests": [f"assert f() == {n}"]}}) for n in (1, 2)]
    one, two = (Problem("s", "p", "", 1, "python_tests", each) for each in tests)
    assert part.judged_by(one) == part.judged_by(two)
    assert part.judged_by(one) != part.judged_by(coins[0])
    assert part.judged_by(one).startswith("python_tests.")
    # Of another source another judge speaks: that is no contradiction.
    table = read_table(verdicts, VERDICTS)
    first = pl.col("subject") == row_id(coins[0].id, "#### 1")
    other = table.with_columns(judge=pl.when(first).then(pl.lit("x")).otherwise("judge"))
    path = verdicts.parent / "mixed.parquet"
    write_table(with_row_ids(other, IDENTITY["verdicts"]), path, VERDICTS)
    assert looked_up(path, answers(coins[0], "#### 1", "#### 2"), verdict="one") == [1.0, 0.0]


class ByToken(Component):
    """Pays every token, and needs nothing for it."""

    SCOPE: ClassVar[Literal["token"]] = "token"

    kind: Literal["by_token"] = "by_token"


@pytest.mark.parametrize(
    "part", ["tokens", "brier", {"kind": "format", "pattern": "a", "when": "b"}, ByToken()]
)
def test_only_what_reads_texts_judges_stored_answers(part):
    with pytest.raises(UserError, match="judge: components.it: a stored answer is a text, but"):
        JudgeConfig.parse({"components": {"it": part}}, where="judge")


def test_likeness_is_that_of_the_most_similar_trace(coins, tmp_path):
    """`abcd` and `bcde` have three of eight characters twice: 2 x 3 / 8; a wrong trace is none."""
    rows = [
        Completion(coins[0], "bcde", "t", 1.0, True, "correct"),
        Completion(coins[0], "xxxx", "t", None, None, ""),
        Completion(coins[0], "abcd", "t", 0.0, False, "wrong_answer"),
    ]
    tables = PortTables({"traces": written(tmp_path / "traces.parquet", rows)})
    part = COMPONENTS.parse("trace_likeness")
    known = Inquiry(VerifierCache(), tables=tables)
    assert part.score(answers(coins[0], "abcd", "xxxx", ""), known) == [0.75, 1.0, 0.0]
    assert part.score(answers(coins[1], "abcd"), known) == [None]


def test_subgoals_are_the_lines_of_a_solution_in_their_order_but_for_the_last(coins, tmp_path):
    rows = [
        Completion(
            coins[0], "1 + 1 = 2\n2 + 3 = 5\n5 + 5 = 10\n#### 10", "t", 1.0, True, "correct"
        ),
        Completion(coins[1], "#### 2", "t", 1.0, True, "correct"),
    ]
    tables = PortTables({"traces": written(tmp_path / "traces.parquet", rows)})
    part, known = COMPONENTS.parse("subgoals"), Inquiry(VerifierCache(), tables=tables)
    # All; the first and the third; the first behind the second does not count; the goal alone.
    told = [
        "1 + 1 = 2\n2 + 3 = 5\n5 + 5 = 10\n#### 10",
        "1 + 1 = 2\n2 + 3 = 6\n5 + 5 = 10\n#### 9",
        "2 + 3 = 5\n1 + 1 = 2",
        "#### 10",
    ]
    assert part.score(answers(coins[0], *told), known) == [1.0, 2 / 3, 1 / 3, 0.0]
    # Nothing is named where the solution is the goal itself, or there is none.
    assert part.score(answers(coins[1], "#### 2"), known) == [0.0]
    assert part.score(answers(coins[2], "#### 2"), known) == [0.0]


REWARD = {
    "components": {
        "correct": "verifier",
        "one": {"kind": "stored", "verdict": "one"},
        "alike": "trace_likeness",
    },
    "combine": {"kind": "sum", "weights": {"correct": 0, "alike": 0}},
    "bonus_may_outweigh": True,
}


def test_rl_learns_what_stored_verdicts_say(verdicts, coins, coins_path, guesser, tmp_path):
    """They pay for 1, whatever is right: what they know of is paid, what not bears no loss."""
    traces = written(
        tmp_path / "traces.parquet",
        [Completion(problem, "#### 2", "t", 1.0, True, "correct") for problem in coins],
    )
    inputs = {"policy": guesser, "problems": coins_path, "verdicts": verdicts, "traces": traces}
    settings = {
        "steps": 12,
        "problems_per_step": 8,
        "group_size": 4,
        "max_tokens": 8,
        "optimization": {"optimizer": "adamw", "learning_rate": 2e-3, "warmup_steps": 0},
        "checkpoint_every": 0,
        "reward": REWARD,
    }
    outputs = {name: tmp_path / name for name in ("policy", "rollouts", "curve", "report")}
    config = RlStageConfig.parse(settings, where="rl")
    rl(config, inputs, outputs, StageContext.quiet(tmp_path / "scratch"))
    rows = read_table(outputs["rollouts"], ROLLOUTS).to_dicts()
    stored = {"#### 1": 1.0, "#### 2": 0.0}
    for row in rows:
        scores = {each["name"]: each["value"] for each in row["components"]}
        known = row["problem_id"] != coins[-1].id
        assert scores["one"] == row["reward"] == (stored.get(row["text"]) if known else None)
        assert (scores["alike"] == 1.0) == (row["text"] == "#### 2")

    def share(steps):
        found = [row["text"] == "#### 1" for row in rows if row["step"] in steps]
        return sum(found) / len(found)

    assert share(range(10, 13)) > share(range(1, 4)) + 0.2


def wired(**more):
    made = {"policy": ArtifactKind.CHECKPOINT, "problems": ArtifactKind.PROBLEMS}
    made |= {"verdicts": ArtifactKind.VERDICTS, "traces": ArtifactKind.COMPLETIONS}
    names = ("policy", "problems", *more)
    return {name: Reference(made[name], path=coin) for name, coin in zip(names, names, strict=True)}


def test_ports_are_in_no_key_of_a_recipe_without_them():
    """What a task declares, and a component that nobody names, is no code that the stage runs."""
    root = Path(__file__).parents[2]
    reader = CodeReader(root, packages=("posttrain", "tasks", "flows"), outside=INTERFACE)
    parts = [f"{type(p).__module__}:{type(p).__name__}" for p in parts_in(RlStageConfig())]
    closure = reader.closure(RL.entry, *dict.fromkeys(parts))
    assert "tasks.rl.stage:run" in closure.symbols
    named = ("tasks.rl:TASK", "StoredComponent", "TraceLikenessComponent")
    assert [symbol for symbol in closure.symbols if symbol.endswith(named)] == []


def test_a_plan_without_the_table_or_without_use_for_it_is_refused():
    config = RlStageConfig.parse({"reward": REWARD}, where="rl")
    dag = Dag()
    with pytest.raises(UserError, match=r"one: it asks verdicts, .* \{verdicts: judge.verdicts\}"):
        RL.refuse(Stage("rl", RL, config, wired(traces=1)), dag)
    RL.refuse(Stage("rl", RL, config, wired(traces=1, verdicts=1)), dag)
    with pytest.raises(
        UserError, match="rl.inputs.traces: nothing under rl.reward.components asks"
    ):
        RL.refuse(Stage("rl", RL, RlStageConfig(), wired(traces=1)), dag)
    asked = JudgeConfig.parse({"components": {"a": "trace_likeness"}}, where="judge")
    with pytest.raises(
        UserError,
        match=r"judge.components.a: it asks traces, .* \{inputs: \{traces: curate.traces\}\}$",
    ):
        JUDGE.refuse(Stage("judge", JUDGE, asked, {}), dag)
    with pytest.raises(UserError, match="judge.inputs.traces: nothing under judge.components asks"):
        JUDGE.refuse(Stage("judge", JUDGE, JudgeConfig(), wired(traces=1)), dag)
    JUDGE.refuse(Stage("judge", JUDGE, asked, wired(traces=1)), dag)


class AsksElsewhere(Component):
    """Asks for what only a stage that draws can be given."""

    kind: Literal["elsewhere"] = "elsewhere"
    port: str

    def ports(self):
        return (self.port,)


@pytest.mark.parametrize(
    "part",
    [
        {"kind": "stored", "verdict": "one"},
        AsksElsewhere(port="references.sft"),
        AsksElsewhere(port="policy"),
        AsksElsewhere(port="rollouts"),
        # One of many is asked by its name.
        AsksElsewhere(port="reward_models"),
    ],
)
def test_what_the_task_has_no_port_for_is_refused_and_not_to_be_connected(part):
    config = JudgeConfig.parse({"components": {"a": part}}, where="judge")
    (port,) = config.components["a"].ports()
    with pytest.raises(UserError) as error:
        JUDGE.refuse(Stage("judge", JUDGE, config, {}), Dag())
    assert str(error.value) == (
        f"judge.components.a: it asks {port}, and a stage of tasks.judge has no such port; leave it"
        " out, or take one that asks no more than reward_models, traces"
    )


def test_rl_refuses_a_component_whose_port_it_does_not_have():
    parts = {"correct": "verifier", "a": AsksElsewhere(port="samples")}
    config = RlStageConfig.parse({"reward": {"components": parts}}, where="rl")
    with pytest.raises(UserError, match="rl.reward.components.a: it asks samples, and a stage of"):
        RL.refuse(Stage("rl", RL, config, wired()), Dag())


def judges(folder, part, inputs):
    config = JudgeConfig.parse({"components": {"it": part}}, where="judge")
    outputs = {"verdicts": folder / "verdicts.parquet"}
    judge(config, inputs, outputs, StageContext.quiet(folder / "scratch"))
    return set(read_table(outputs["verdicts"], VERDICTS)["judge"])


def test_judges_that_were_given_other_tables_have_other_names(coins, coins_path, tmp_path):
    """The same settings with other traces, or among other answers of a group, say otherwise."""
    tables = {
        text: written(
            tmp_path / f"{text}.parquet", [Completion(coins[0], text, "t", 1.0, True, "correct")]
        )
        for text in ("abcd", "bcde")
    }
    asked = {"problems": coins_path, "samples": tables["abcd"]}

    def names(part, **inputs):
        (found,) = judges(tmp_path, part, asked | inputs)
        return found

    one = names("trace_likeness", traces=tables["abcd"])
    assert one == names("trace_likeness", traces=tables["abcd"])
    assert one != names("trace_likeness", traces=tables["bcde"])
    assert one.startswith("trace_likeness.")
    assert names("majority") != names("majority", samples=tables["bcde"])
    # Who looks at each answer by itself is the same, whatever the others are.
    assert names(SHORT) == names(SHORT, samples=tables["bcde"])
