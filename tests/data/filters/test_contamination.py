import polars as pl
import pytest

from posttrain.data.filters.base import FilterInputs
from posttrain.data.filters.contamination import ContaminationFilter
from posttrain.data.schemas import Problem, problems_table


def _table(*prompts: str, prefix: str = "t") -> pl.DataFrame:
    table = problems_table([Problem("s", prompt, "5", 1, "exact") for prompt in prompts])
    ids = pl.Series("id", [f"{prefix}{i}" for i in range(len(prompts))], dtype=pl.String)
    return table.with_columns(ids)


def _judged(train, heldout, *, ngram=4, boilerplate=20):
    heldout = _table(*heldout, prefix="h")
    part = ContaminationFilter(ngram=ngram, boilerplate=boilerplate)
    return part.reasons(_table(*train), FilterInputs(heldout)).rows()


@pytest.mark.parametrize("prompt", ["Add 2 and 3", "add 2\nand 3.", 'ADD "2" and 3?'])
def test_the_same_prompt_is_found_whatever_its_case_and_punctuation(prompt):
    assert _judged([prompt], ["other", "Add 2 and 3"]) == [("evaluation_prompt", "h1")]


@pytest.mark.parametrize("prompt", ["2 + 4", "2 - 3", "3 + 2", "add 2 + 3"])
def test_another_number_operator_or_word_is_another_prompt(prompt):
    assert _judged([prompt], ["2 + 3"]) == [("", "")]


def test_a_shared_run_of_words_counts_from_its_full_length_on():
    heldout = ["Max bought stamps with a rose design"]
    # "stamps with a rose" are 4 words; "stamps with a" only 3.
    assert _judged(["Bella got stamps with a rose on"], heldout) == [("evaluation_ngram", "h0")]
    assert _judged(["Bella got stamps with a tree on"], heldout) == [("", "")]


def test_numbers_within_a_run_do_not_hide_it():
    train, heldout = ["a train travels 270 miles in 3 hours"], ["the train travels 1200 miles in 5"]
    assert _judged(train, heldout) == [("evaluation_ngram", "h0")]


def test_equality_is_reported_before_a_shared_run_and_the_least_id_is_named():
    text = "one two three four"
    assert _judged([text], [text + " five", text, text]) == [("evaluation_prompt", "h1")]
    assert _judged([text + " six"], ["x " + text, text]) == [("evaluation_ngram", "h0")]


def test_a_template_is_no_evidence_but_what_it_frames_is():
    frame = "please say what the final result of this sum is "
    heldout = [frame + "alpha beta gamma delta"]
    others = [frame + f"{word} thing" for word in ("red", "green", "blue")]
    leak = frame + "alpha beta gamma delta epsilon"
    # The template's runs stand in 5 problems, those of the leak in 2.
    assert _judged([*others, leak], heldout, boilerplate=4) == [("", "")] * 3 + [
        ("evaluation_ngram", "h0")
    ]
    assert _judged([*others, leak], heldout, boilerplate=5) == [("evaluation_ngram", "h0")] * 4


def test_a_few_words_beside_a_template_do_not_make_a_run():
    frame = "how many times does the letter stand in the text "
    train = [frame + words for words in ("old fox", "new dog", "big cat")]
    # "in the text old" stands in 2 problems only, but 3 of its 4 words are the template.
    assert _judged(train, [frame + "old hen"], boilerplate=3) == [("", "")] * 3


def test_half_a_run_is_enough_of_a_template():
    train = ["red what is the fox", "tea what is the dog", "cup what is the cat"]
    # "red what is the" stands in 2 problems, "what is" and "is the" in 4.
    assert _judged(train, ["red what is the hen"], boilerplate=3) == [("", "")] * 3
    assert _judged(train, ["red what is the hen"], boilerplate=4)[0] == ("evaluation_ngram", "h0")


def test_of_several_evaluation_problems_the_least_id_is_named():
    heldout = ["five six seven eight", "one two three four"]
    assert _judged([f"{heldout[1]} {heldout[0]}"], heldout) == [("evaluation_ngram", "h0")]
    assert _judged([f"{heldout[0]} {heldout[1]}"], heldout) == [("evaluation_ngram", "h0")]


def test_a_text_that_says_a_run_twice_counts_once_for_the_template():
    run = "one two three four"
    train = [f"{run} and {run} and {run}"]
    assert _judged(train, [f"so {run}"], boilerplate=2) == [("evaluation_ngram", "h0")]


def test_without_runs_only_whole_prompts_are_compared():
    text = "one two three four five"
    assert _judged([text + " six", text], [text], ngram=None) == [
        ("", ""),
        ("evaluation_prompt", "h0"),
    ]


def test_an_empty_evaluation_drops_nothing():
    assert _judged(["one two three four"], []) == [("", "")]
