import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reasoning_gym.factory import create_dataset

from posttrain.data.schemas import Problem
from posttrain.learning.rewards.verifiers.reasoning_gym import GymVerifier
from posttrain.stage.errors import UserError


def _problem(source: str, answer: str, **metadata: object) -> Problem:
    return Problem(source, "?", answer, 1, "reasoning_gym", json.dumps(metadata))


_COUNTDOWN = _problem("countdown", "6 * 4 + 1", numbers=[1, 4, 6], target=25)


@pytest.mark.parametrize("source", ["chain_sum", "basic_arithmetic", "gcd", "letter_counting"])
def test_the_librarys_own_answers_are_correct_and_others_are_not(source):
    for entry in create_dataset(source, size=5, seed=3):
        problem = Problem(
            source, entry["question"], entry["answer"], 1, "reasoning_gym",
            json.dumps(entry["metadata"], default=str),
        )  # fmt: skip
        right = GymVerifier().score(f"so\n#### {entry['answer']}", problem)
        wrong = GymVerifier().score("#### 987654321", problem)
        assert (right.value, right.reason) == (1.0, "correct")
        assert wrong.value < 1.0
        assert wrong.reason == "wrong_answer"


def test_the_score_is_the_librarys_also_between_right_and_wrong():
    # basic_arithmetic gives an answer that contains the reference len("12") / len("3120").
    found = GymVerifier().score("#### 3120", _problem("basic_arithmetic", "12"))
    assert (found.value, found.reason) == (0.5, "wrong_answer")
    assert not found.correct


def test_chain_sum_takes_another_spelling_of_the_number():
    assert GymVerifier().score("#### +01,000.00", _problem("chain_sum", "1000")).correct


def test_the_metadata_names_the_generator_before_the_source_does():
    problem = _problem("my_mix", "1000", source_dataset="chain_sum")
    assert GymVerifier().score("#### 1,000", problem).correct


def test_an_expression_is_scored_by_its_value():
    assert GymVerifier().score("#### (6*4) + 1", _COUNTDOWN).correct
    assert GymVerifier().score("#### 6*4 - 1", _COUNTDOWN).reason == "wrong_answer"


@pytest.mark.parametrize(
    "answer",
    ["__import__('os').getpid()", "9**9**9**9", "9* *9", "x", "6*4+1 # so", "1" * 201],
)
def test_only_arithmetic_reaches_a_scorer_that_evaluates(answer):
    found = GymVerifier().score(f"#### {answer}", _COUNTDOWN)
    assert (found.value, found.reason) == (0.0, "not_arithmetic")


def test_a_scorer_that_runs_the_answer_is_refused():
    with pytest.raises(UserError, match="'spiral_matrix' by running the answer as code"):
        GymVerifier().score("#### [1, 2]", _problem("spiral_matrix", "1 2"))


def test_an_unknown_generator_is_one_sentence():
    with pytest.raises(UserError, match="no generator 'chain_sums'; did you mean 'chain_sum'"):
        GymVerifier().score("#### 1", _problem("chain_sums", "1"))


@settings(max_examples=50)
@given(st.text(min_size=1, max_size=30))
def test_no_answer_breaks_the_scorers(answer):
    for source in ("chain_sum", "basic_arithmetic", "spell_backward", "letter_counting"):
        assert 0.0 <= GymVerifier().score(f"#### {answer}", _problem(source, "12")).value <= 1.0
