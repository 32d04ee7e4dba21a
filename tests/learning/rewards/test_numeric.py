import json
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posttrain.data.schemas import Problem
from posttrain.learning.rewards.verifiers.numeric import NumericVerifier, parse_number
from posttrain.stage.errors import UserError


def _problem(answer: str) -> Problem:
    return Problem("gsm8k", "How many?", answer, difficulty=1, verifier="numeric")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("72", 72),
        ("-72", -72),
        ("\u221272", -72),
        ("+72", 72),
        ("072", 72),
        ("72.", 72),
        ("72.0", 72),
        (".5", Fraction(1, 2)),
        ("0.125", Fraction(1, 8)),
        ("1,234,567", 1234567),
        ("$1,234.50", Fraction(2469, 2)),
        ("-$5", -5),
        ("$-5", -5),
        (r"\$5", 5),
        ("50%", 50),
        ("3/4", Fraction(3, 4)),
        ("18 eggs", 18),
        ("18 dollars.", 18),
        ("5 km/h", 5),
    ],
)
def test_a_number_is_read_however_it_is_written(text, value):
    assert parse_number(text) == value


@pytest.mark.parametrize(
    "text",
    ["", "-", "$", ".", "eggs", "4 + 5", "4 or 5", "12,34", "1,2", "1.2.3", "--5", "-$-5", "1/0",
     "1e9", "nan", "inf", "72 73", "\u0667", "9" * 65],
)  # fmt: skip
def test_what_is_not_exactly_one_number_is_none(text):
    assert parse_number(text) is None


@given(st.integers(-(10**15), 10**15), st.integers(0, 4))
def test_separators_and_trailing_zeros_change_nothing(number, zeros):
    decimals = "." + "0" * zeros if zeros else ""
    assert parse_number(f"{number:,}{decimals}") == number


@given(st.text(max_size=80))
def test_no_text_breaks_the_reader(text):
    parse_number(text)


@pytest.mark.parametrize(
    ("text", "score", "reason"),
    [
        ("48 + 24 = 72\n#### 72", 1.0, "correct"),
        ("#### $72.00", 1.0, "correct"),
        ("#### 73", 0.0, "wrong_answer"),
        ("#### -72", 0.0, "wrong_answer"),
        ("#### 70 + 2", 0.0, "not_a_number"),
    ],
)
def test_the_number_counts_and_not_its_form(text, score, reason):
    for reference in ("72", "48/2 = <<48/2=24>>24\n#### 72"):
        found = NumericVerifier().score(text, _problem(reference))
        assert (found.value, found.reason) == (score, reason)


def test_a_reference_that_is_no_number_is_one_sentence():
    with pytest.raises(UserError, match="'numeric', but its answer is 'blue'.*'exact'"):
        NumericVerifier().score("#### 5", _problem("blue"))


_GSM8K = Path(__file__).parents[3].parent / "shared/data/gsm8k/train.jsonl"


@pytest.mark.skipif(not _GSM8K.exists(), reason="needs the GSM8K files beside the checkout")
def test_every_gsm8k_solution_is_its_own_right_answer():
    with _GSM8K.open() as lines:
        solutions = [json.loads(line)["answer"] for line in lines]
    wrong = [
        text for text in solutions if not NumericVerifier().score(text, _problem(text)).correct
    ]
    assert len(solutions) == 7473
    assert wrong == []
