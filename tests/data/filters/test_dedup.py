import random

import polars as pl
import pytest

from posttrain.data.filters.base import FilterInputs
from posttrain.data.filters.exact_duplicates import ExactDuplicatesFilter
from posttrain.data.filters.minhash import near_duplicates
from posttrain.data.schemas import Problem, problems_table


def _table(*rows: tuple[str, str]) -> pl.DataFrame:
    """Problems in the given order, with the ids a, b, c, ..."""
    table = problems_table([Problem("s", prompt, answer, 1, "exact") for prompt, answer in rows])
    return table.with_columns(pl.Series("id", [chr(ord("a") + i) for i in range(len(rows))]))


def exact_duplicates(frame: pl.DataFrame, columns: tuple[str, ...]) -> pl.DataFrame:
    return ExactDuplicatesFilter(columns=columns).reasons(frame, FilterInputs())


def _judged(judgments: pl.DataFrame) -> list[tuple[str, str]]:
    return judgments.rows()


def test_the_first_of_equal_texts_stays():
    table = _table(("2 + 3", "5"), ("2 + 4", "6"), (" 2  +\n3 ", "5"), ("2 + 3", "5"))
    assert _judged(exact_duplicates(table, ("prompt",))) == [
        ("", ""),
        ("", ""),
        ("exact_duplicate", "a"),
        ("exact_duplicate", "a"),
    ]


def test_letters_and_case_make_another_text():
    table = _table(('count "H"', "1"), ('count "h"', "1"), ("count h", "1"))
    assert _judged(exact_duplicates(table, ("prompt",))) == [("", "")] * 3


def test_equal_prompts_with_different_answers_contradict_each_other():
    table = _table(("2 + 3", "5"), ("2 + 3", "6"))
    assert _judged(exact_duplicates(table, ("prompt",)))[1] == ("conflicting_answer", "a")


def test_all_named_columns_must_be_equal():
    traces = pl.DataFrame(
        {"id": ["t", "u", "v"], "problem_id": ["p", "q", "q"], "text": ["#### 5"] * 3}
    )
    assert _judged(exact_duplicates(traces, ("problem_id", "text"))) == [
        ("", ""),
        ("", ""),
        ("exact_duplicate", "u"),
    ]


# 12 words have 10 runs of 3. Another last word changes one run: 9 shared of 11, 0.818.
_WORDS = ["one", "red", "fox", "and", "two", "blue", "birds", "met", "in", "the", "old", "town"]


@pytest.mark.parametrize(("similarity", "reason"), [(0.81, "near_duplicate"), (0.82, "")])
def test_similarity_is_the_share_of_common_runs_of_words(similarity, reason):
    left, right = " ".join(_WORDS), " ".join([*_WORDS[:-1], "city"])
    judged = _judged(near_duplicates(_table((left, "5"), (right, "5")), similarity, shingle=3))
    assert judged == [("", ""), (reason, "a" if reason else "")]


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (("Calculate 5 - 3 - 6.", "-4"), ("Calculate 5 - 3 - 7.", "-5")),
        (("Calculate 5 - 3 + 0.", "2"), ("Calculate 5 - 3 - 0.", "2")),
        (("Calculate 5 - 3.", "2"), ("Calculate 3 - 5.", "-2")),
        (
            ('How many "a" are in "banana split"?', "3"),
            ('How many "n" are in "banana split"?', "2"),
        ),
    ],
)
def test_another_number_operator_or_answer_is_another_problem(left, right):
    assert _judged(near_duplicates(_table(left, right), 0.7, shingle=1)) == [("", "")] * 2


def test_case_and_punctuation_make_near_duplicates():
    table = _table(("What is 1,000 + 2 apples", "1002"), ("what is: 1000 + 2 Apples?", "1002"))
    assert _judged(near_duplicates(table, 1.0, shingle=3))[1] == ("near_duplicate", "a")


def test_prompts_without_words_are_compared_by_their_symbols():
    table = _table(("2+3=", "5"), ("2 + 3 =", "5"), ("3 + 2 =", "5"))
    assert [reason for reason, _ in _judged(near_duplicates(table, 0.8, shingle=3))] == [
        "",
        "near_duplicate",
        "",
    ]


def test_no_rows_are_no_trouble():
    assert _judged(near_duplicates(_table(), 0.8, shingle=3)) == []
    assert _judged(exact_duplicates(_table(), ("prompt",))) == []


def _families(num_families: int, seed: int) -> pl.DataFrame:
    """Texts of 40 random words, each three times with another last word; `source` is the family."""
    rng = random.Random(seed)
    rows = []
    for family in range(num_families):
        text = " ".join("".join(rng.choices("abcdefgh", k=6)) for _ in range(39))
        rows += [
            Problem(str(family), f"{text} {last}", "5", 1, "exact") for last in ("x", "y", "z")
        ]
    return problems_table(rows).sort("id")


def test_all_similar_texts_are_found_among_many_and_name_the_least_id():
    # 38 runs of 3 words, 37 of them shared: 37 / 39 = 0.949.
    table = _families(200, seed=1)
    judged = near_duplicates(table, 0.9, shingle=3)
    least = table.select(pl.col("id").min().over("source")).to_series()
    first = table["id"] == least
    assert (judged["reason"] == "near_duplicate").equals(~first)
    assert judged["match"].filter(~first).equals(least.filter(~first), check_names=False)


def test_what_stays_does_not_depend_on_the_order_of_the_input():
    table = _families(30, seed=2)
    judged = near_duplicates(table, 0.9, shingle=3)
    shuffled = table.sample(fraction=1.0, shuffle=True, seed=3).sort("id")
    assert near_duplicates(shuffled, 0.9, shingle=3).equals(judged)


def test_of_a_chain_of_similar_texts_one_stays():
    steps = [_WORDS, [*_WORDS[:-1], "city"], ["the", *_WORDS[1:-1], "city"]]
    table = _table(*((" ".join(text), "5") for text in steps))
    # a-b and b-c share 9 of 11 runs, a-c only 8 of 12.
    reasons = near_duplicates(table, 0.75, shingle=3)["reason"].to_list()
    assert reasons == ["", "near_duplicate", "near_duplicate"]
