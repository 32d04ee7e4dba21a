import pytest

from posttrain.data.schemas import Problem
from posttrain.learning.rewards.verifiers.exact import ExactVerifier

_PROBLEM = Problem("words", "Say it", "New  York", difficulty=1, verifier="exact")


@pytest.mark.parametrize(
    ("text", "score", "reason"),
    [
        ("#### New York", 1.0, "correct"),
        ("I think\n####  New   York ", 1.0, "correct"),
        ("#### new york", 0.0, "wrong_answer"),
        ("#### NewYork", 0.0, "wrong_answer"),
        ("#### New York\n#### Boston", 0.0, "wrong_answer"),
    ],
)
def test_letters_count_and_white_space_does_not(text, score, reason):
    found = ExactVerifier().score(text, _PROBLEM)
    assert (found.value, found.reason) == (score, reason)
