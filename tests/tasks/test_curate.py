import json
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest

from posttrain.data.filters.base import FilterInputs
from posttrain.data.filters.dropped_problem import DroppedProblemFilter
from posttrain.data.filters.verified import VerifiedFilter
from posttrain.data.schemas import (
    COMPLETIONS,
    DROPPED,
    PROBLEMS,
    Completion,
    Problem,
    completions_table,
    problems_table,
)
from posttrain.data.tables import check_table, read_table, write_table
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from tasks.curate import TASK
from tasks.curate.config import CurateConfig
from tasks.curate.stage import run


def _problem(prompt: str, answer: str = "5", difficulty: int = 1, source: str = "s") -> Problem:
    return Problem(source, prompt, answer, difficulty, "exact")


def _trace(problem: Problem, text: str, reason: str = "correct") -> Completion:
    right = reason == "correct"
    return Completion(problem, text, "teacher", float(right), right, reason)


_EASY = _problem("2 + 3", difficulty=1)
_HARD = _problem("12 + 9 - 16", difficulty=3)
_TWIN = _problem("2  + 3", difficulty=1, source="z")
_LEAK = _problem("1 + 4", difficulty=2)
_LONG = _problem("5 + " * 30 + "0", "150", difficulty=2)
_TRACES = [
    _trace(_HARD, "#### 5"),
    _trace(_EASY, "2 + 3 = 5\n#### 5"),
    _trace(_EASY, "2 + 3 =  5\n#### 5"),
    _trace(_EASY, "2 + 3 = 6\n#### 6", "wrong_answer"),
    _trace(_LEAK, "#### 5"),
    _trace(_problem("never seen"), "#### 5"),
]
_SHORT = {"prompt_length": {"most": 100}}
_CONFIG = CurateConfig(problem_filters=_SHORT)


class _Bench:
    """Tables in a folder, and one run of the stage over them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.outputs = {
            name: folder / f"out_{name}{port.type.suffix}" for name, port in TASK.outputs.items()
        }

    def run(
        self,
        problems: Sequence[Problem],
        traces: Sequence[Completion],
        *,
        heldout: Sequence[Problem] = (_LEAK,),
        config: CurateConfig = _CONFIG,
    ) -> dict[str, float]:
        inputs = {name: self.folder / f"{name}.parquet" for name in TASK.inputs}
        write_table(problems_table(problems), inputs["problems"], PROBLEMS)
        write_table(problems_table(heldout), inputs["heldout"], PROBLEMS)
        write_table(completions_table(traces), inputs["traces"], COMPLETIONS)
        return run(config, inputs, self.outputs, StageContext.quiet(self.folder / "scratch"))

    def table(self, name: str) -> pl.DataFrame:
        return pl.read_parquet(self.outputs[name])

    def reasons(self, name: str) -> dict[str, str]:
        return dict(self.table(name).select("id", "reason").iter_rows())


@pytest.fixture
def bench(tmp_path: Path) -> _Bench:
    return _Bench(tmp_path)


def _kept_twin() -> tuple[Problem, Problem]:
    """Of two equal prompts the one with the least id stays."""
    first, second = sorted((_EASY, _TWIN), key=lambda problem: problem.id)
    return first, second


def test_every_row_is_kept_or_dropped_with_its_reason(bench):
    kept, twin = _kept_twin()
    metrics = bench.run([_HARD, _EASY, _TWIN, _LEAK, _LONG], [_trace(kept, "#### 5")])
    assert bench.table("problems")["id"].to_list() == [kept.id, _HARD.id]
    assert bench.reasons("dropped_problems") == {
        _LONG.id: "too_long",
        twin.id: "exact_duplicate",
        _LEAK.id: "evaluation_prompt",
    }
    assert metrics == {
        "curate/num_problems": 2.0,
        "curate/num_dropped_problems": 3.0,
        "curate/num_traces": 1.0,
        "curate/num_dropped_traces": 0.0,
    }


def test_a_limit_that_takes_most_of_a_source_is_refused(bench):
    few = [_problem(f"1 + {n}", str(n + 1)) for n in range(2)]
    long = [_problem("7 + " * 30 + str(n), str(210 + n)) for n in range(3)]
    with pytest.raises(UserError, match="curate: 60% of the problems of .* are longer .*most_too"):
        bench.run([*few, *long], [_trace(few[0], "#### 1")])
    lenient = _CONFIG.model_copy(update={"most_too_long": 0.6})
    bench.run([*few, *long], [_trace(few[0], "#### 1")], config=lenient)
    assert len(bench.table("problems")) == 2


def test_a_dropped_row_names_the_row_that_speaks_against_it(bench):
    kept, twin = _kept_twin()
    bench.run([_EASY, _TWIN, _LEAK], [_trace(kept, "#### 5")])
    matches = dict(bench.table("dropped_problems").select("id", "match").iter_rows())
    assert matches == {twin.id: kept.id, _LEAK.id: _LEAK.id}


def test_traces_follow_their_problems_and_are_sifted_themselves(bench):
    bench.run([_HARD, _EASY, _LEAK], _TRACES)
    twins = sorted(trace.id for trace in _TRACES[1:3])
    assert bench.table("traces")["id"].to_list() == [twins[0], _TRACES[0].id]
    assert bench.reasons("dropped_traces") == {
        twins[1]: "exact_duplicate",
        _TRACES[3].id: "wrong_answer",
        _TRACES[4].id: "problem_evaluation_prompt",
        _TRACES[5].id: "unknown_problem",
    }


def test_problems_and_traces_go_from_easy_to_hard(bench):
    problems = [_problem(f"{i} + 0", str(i), difficulty=9 - i) for i in range(9)]
    bench.run(problems, [_trace(problem, "#### 0") for problem in problems])
    expected = [problem.id for problem in reversed(problems)]
    assert bench.table("problems")["id"].to_list() == expected
    assert bench.table("traces")["problem_id"].to_list() == expected


def test_problems_without_an_answer_go(bench):
    bench.run([_EASY, _problem("3 + 3", " ")], [_trace(_EASY, "#### 5")])
    assert list(bench.reasons("dropped_problems").values()) == ["empty"]


def test_the_same_row_twice_stays_once_with_its_traces(bench):
    bench.run([_EASY, _EASY], [_trace(_EASY, "#### 5")])
    assert bench.table("problems")["id"].to_list() == [_EASY.id]
    assert bench.reasons("dropped_problems") == {_EASY.id: "exact_duplicate"}
    assert len(bench.table("traces")) == 1


def test_the_report_counts_per_reason_source_and_bucket(bench):
    kept, _ = _kept_twin()
    config = CurateConfig(problem_filters=_SHORT, difficulty_edges=(2,))
    bench.run([_HARD, _EASY, _TWIN, _LEAK, _LONG], [_trace(kept, "#### 5")], config=config)
    problems = json.loads(bench.outputs["report"].read_text())["problems"]
    reasons = {"evaluation_prompt": 1, "exact_duplicate": 1, "too_long": 1}
    assert (problems["read"], problems["kept"], problems["dropped"]) == (5, 2, reasons)
    assert problems["by_difficulty"] == [
        {"bucket": "..2", "read": 4, "kept": 1, "dropped": reasons},
        {"bucket": "3+", "read": 1, "kept": 1, "dropped": {}},
    ]
    assert {row["source"]: row["read"] for row in problems["by_source"]} == {"s": 4, "z": 1}


def test_the_outputs_do_not_depend_on_the_order_of_the_input(tmp_path):
    problems = [_HARD, _EASY, _TWIN, _LEAK, _LONG]
    digests = []
    for name, step in (("straight", 1), ("reversed", -1)):
        (tmp_path / name).mkdir()
        bench = _Bench(tmp_path / name)
        bench.run(problems[::step], _TRACES[::step])
        digests.append({key: path.read_bytes() for key, path in bench.outputs.items()})
    assert digests[0] == digests[1]


def test_the_outputs_have_the_types_of_their_ports(bench):
    bench.run([_HARD, _EASY], [_trace(_EASY, "#### 5")])
    assert check_table(bench.outputs["problems"], PROBLEMS) == 2
    assert check_table(bench.outputs["traces"], COMPLETIONS) == 1
    assert check_table(bench.outputs["dropped_problems"], DROPPED) == 0
    assert "answer" in read_table(bench.outputs["dropped_problems"], DROPPED).columns


def test_filters_that_are_switched_off_drop_nothing(bench):
    loose = CurateConfig(
        problem_filters={
            "exact_duplicates": None,
            "near_duplicates": None,
            "contamination": {"ngram": None},
        },
        trace_filters={"verified": None},
    )
    wrong = _trace(_EASY, "#### 6", "wrong_answer")
    bench.run([_EASY, _TWIN], [wrong], config=loose)
    assert len(bench.table("problems")) == 2
    assert bench.table("traces")["reason"].to_list() == ["wrong_answer"]


def test_limits_per_bucket_and_per_problem_choose_by_id(bench):
    problems = [_problem(f"{i} + 0", str(i), difficulty=i % 2) for i in range(10)]
    traces = [_trace(problem, f"{way} #### 5") for problem in problems for way in range(4)]
    config = CurateConfig(
        problem_filters={"bucket_size": {"most": 3}}, trace_filters={"per_problem": {"most": 2}}
    )
    bench.run(problems, traces, config=config, heldout=[_LEAK])
    for level in (0, 1):
        ids = sorted(problem.id for problem in problems if problem.difficulty == level)
        kept = bench.table("problems").filter(pl.col("difficulty") == level)
        assert kept["id"].to_list() == ids[:3]
    assert bench.table("traces")["problem_id"].value_counts()["count"].to_list() == [2] * 6
    reasons = set(bench.reasons("dropped_traces").values())
    assert reasons == {"problem_bucket_full", "enough_traces"}


def test_nothing_left_is_one_sentence_that_names_the_worst_filter(bench):
    problems = [_LEAK, _LONG, _problem("7 + " * 30 + "0", "210")]
    with pytest.raises(UserError, match="no problems are left; 2 of 3 went as 'too_long'"):
        bench.run(problems, [])
    with pytest.raises(UserError, match="no traces are left; 1 of 1 went as 'unknown_problem'"):
        bench.run([_EASY], [_TRACES[5]])
    assert not any(path.exists() for path in bench.outputs.values())


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (
            {"problem_filters": {"prompt_length": {"least": 9, "most": 3}}},
            "curate.problem_filters.prompt_length: least 9 is more than most 3; exchange them",
        ),
        ({"difficulty_edges": (3, 3)}, "curate: difficulty_edges is .3, 3.; write each edge once"),
        ({"problem_filters": {"near_duplicate": {}}}, "did you mean 'near_duplicates'"),
        (
            {"problem_filters": {"near_duplicate": None}},
            "there is no 'near_duplicate' to leave out; did you mean 'near_duplicates'",
        ),
        (
            {"trace_filters": {"xyz": None}},
            "no 'xyz' to leave out; the labels are dropped_problem, verified, text_length",
        ),
        (
            {"problem_filters": {"near_duplicates": {"similarity": 0.3}}},
            "curate.problem_filters.near_duplicates.similarity: input should be greater than or",
        ),
        ({"problem_filters": {"near_duplicates": {"similarty": 1}}}, "did you mean 'similarity'"),
        ({"problem_filters": ["verified", "verified"]}, "has 'verified' twice; leave one out"),
        (
            {"problem_filters": ["dropped_problem"]},
            "problem_filters has 'dropped_problem', which needs the problems that stay",
        ),
        ({"order": "random"}, "curate.order: input should be 'easy_to_hard'"),
    ],
)
def test_a_config_that_makes_no_sense_is_refused(values, sentence):
    with pytest.raises(UserError, match=sentence):
        CurateConfig.parse(values, where="curate")


def test_a_label_changes_a_filter_in_its_place_and_a_new_one_comes_last():
    given = {"contamination": {"ngram": 8}, "exact_duplicates": None, "more": {"kind": "verified"}}
    labels = [each.label for each in CurateConfig(problem_filters=given).problem_filters]
    assert labels == [
        "prompt_length",
        "answer_length",
        "difficulty_range",
        "contamination",
        "near_duplicates",
        "bucket_size",
        "verified",
    ]
    parsed = CurateConfig.parse({"problem_filters": given}, where="curate")
    assert parsed.problem_filters[3].model_dump() == {
        "kind": "contamination",
        "ngram": 8,
        "boilerplate": 20,
    }
    assert CurateConfig.parse(parsed.model_dump(), where="curate") == parsed


def test_a_verdict_is_the_reason_and_silence_is_unverified():
    traces = pl.DataFrame(
        {
            "verified": [True, False, False, False],
            "reason": ["correct", "no_answer", "", "correct"],
        }
    )
    reasons = VerifiedFilter().reasons(traces, FilterInputs())["reason"].to_list()
    assert reasons == ["", "no_answer", "unverified", "unverified"]


def test_of_equal_problems_the_one_that_came_furthest_decides_about_the_traces():
    kept = pl.DataFrame({"id": ["a"]})
    dropped = pl.DataFrame(
        {"id": ["a", "b", "b"], "reason": ["exact_duplicate", "exact_duplicate", "too_hard"]}
    )
    traces = pl.DataFrame({"problem_id": ["b", "a", "c"]})
    inputs = FilterInputs(problems=kept, dropped=dropped)
    judged = DroppedProblemFilter().reasons(traces, inputs)
    assert judged["reason"].to_list() == ["problem_too_hard", "", "unknown_problem"]


_GSM8K = Path(__file__).parents[2].parent / "shared/data/gsm8k"


def _gsm8k(split: str) -> tuple[list[Problem], list[Completion]]:
    with (_GSM8K / f"{split}.jsonl").open() as lines:
        rows = [json.loads(line) for line in lines]
    answers = [row["answer"].split("#### ")[1] for row in rows]
    problems = [
        Problem("gsm8k", row["question"], answer, 1, "numeric")
        for row, answer in zip(rows, answers, strict=True)
    ]
    pairs = zip(problems, rows, strict=True)
    return problems, [_trace(problem, row["answer"]) for problem, row in pairs]


@pytest.mark.skipif(not _GSM8K.exists(), reason="needs the GSM8K files beside the checkout")
def test_gsm8k_loses_only_its_near_copies_of_test_problems(bench):
    problems, traces = _gsm8k("train")
    bench.run(problems, traces, heldout=_gsm8k("test")[0], config=CurateConfig())
    dropped = bench.table("dropped_problems")
    counts = dict(dropped["reason"].value_counts().iter_rows())
    # Read one by one: six share a sentence with a test problem that has other numbers, one is a
    # training problem again under another first name.
    assert counts == {"evaluation_ngram": 6, "near_duplicate": 1}
    assert dropped["prompt"].str.contains("additional hours|snowflake|cat food").sum() == 4
    assert len(bench.table("traces")) == 7466
