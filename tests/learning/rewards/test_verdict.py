import doctest

import pytest

from posttrain.data.schemas import Problem
from posttrain.learning.rewards import VERIFIERS, final_answer, numeric, verdict, verify
from posttrain.learning.rewards.verdict import Verdict, reference_answer
from posttrain.stage.errors import UserError


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("#### 5", "5"),
        ("2 + 3 = 5\n#### 5\n", "5"),
        ("#### 4\nwait\n  ####   5  ", "5"),
        ("####5", "5"),
        ("#### a #### b", "a #### b"),
        ("the marker is #### 5", None),
        ("#### 5\n####", None),
        ("", None),
    ],
)
def test_the_answer_stands_on_the_last_marked_line(text, answer):
    assert final_answer(text) == answer


def test_a_worked_solution_may_be_the_reference():
    assert reference_answer("1 + 1 = 2\n#### 2") == "2"
    assert reference_answer(" plain ") == "plain"


def test_only_a_full_score_is_correct():
    assert Verdict(1.0, "correct").correct
    assert not Verdict(0.99, "wrong_answer").correct


def test_the_verifier_is_looked_up_by_name():
    problem = Problem("sums", "2 + 3 =", "5", difficulty=1, verifier="exact")
    assert verify("#### 5", problem) == Verdict(1.0, "correct")


def test_an_unknown_verifier_is_one_sentence():
    problem = Problem("sums", "2 + 3 =", "5", difficulty=1, verifier="exakt")
    with pytest.raises(UserError, match="verifier 'exakt'.*did you mean 'exact'"):
        verify("#### 5", problem)


@pytest.mark.parametrize("module", [verdict, numeric])
def test_the_examples_in_the_docstrings_hold(module):
    results = doctest.testmod(module)
    assert results.attempted > 0
    assert results.failed == 0


@pytest.mark.parametrize("name", [name for name in VERIFIERS if name != "judge"])
def test_every_verifier_but_the_judge_says_no_answer_where_there_is_none(name):
    problem = Problem("chain_sum", "2 + 3 =", "5", difficulty=1, verifier=name)
    assert verify("the answer is 5", problem) == Verdict(0.0, "no_answer")
