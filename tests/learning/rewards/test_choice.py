import pytest

from posttrain.data.schemas import Problem
from posttrain.learning.rewards.verifiers.choice import ChoiceVerifier
from posttrain.stage.errors import UserError

CAPITALS = ("Paris", "New York", "Rome")


def reason(answer, right="B", **fields):
    problem = Problem("quiz", "Which?", right, 1, "choice")
    return ChoiceVerifier(answer="whole", **fields).score(answer, problem).reason


@pytest.mark.parametrize(
    "answer",
    ["B", "b", "(B)", "(b)", "[B]", "B.", "B)", "**B**", r"\text{B}", r"$\textbf{(B)}$", "B. Paris",
     "(B) because of A", "B: yes"],
)  # fmt: skip
def test_the_letter_counts_however_it_is_written(answer):
    assert reason(answer) == "correct"
    assert reason(answer, right="C") == "wrong_answer"


@pytest.mark.parametrize("answer", ["Because", "A or B", "AB", "K", "", "5", "a lot"])
def test_what_is_no_choice_says_so(answer):
    assert reason(answer) in ("not_a_choice", "no_answer")


def test_the_text_of_a_choice_counts_too():
    assert reason("new  york.", options=CAPITALS) == "correct"
    assert reason("Rome", options=CAPITALS) == "wrong_answer"
    assert reason("B", right="New York", options=CAPITALS) == "correct"
    # There are three choices, so D is none.
    assert reason("D", options=CAPITALS) == "not_a_choice"
    assert reason("D") == "wrong_answer"


def test_a_reference_that_is_no_choice_is_refused():
    with pytest.raises(UserError, match="its answer is 'Oslo'; give one of the letters A, B, C"):
        reason("B", right="Oslo", options=CAPITALS)
