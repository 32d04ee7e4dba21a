import pytest

from posttrain.data.schemas import Problem
from posttrain.learning.rewards.verifiers.format import FormatVerifier

_PROBLEM = Problem("sums", "2 + 3 =", "5", difficulty=1, verifier="format")


@pytest.mark.parametrize(
    ("text", "value", "reason"),
    [
        ("2 + 3 = 6\n#### 6", 1.0, "correct"),
        ("#### 6\n\n", 1.0, "correct"),
        ("#### 5\n#### 5", 0.0, "several_answers"),
        ("#### 5\nthat is it", 0.0, "text_after_answer"),
        ("####", 0.0, "no_answer"),
        ("5", 0.0, "no_answer"),
    ],
)
def test_only_the_form_of_the_answer_counts(text, value, reason):
    score = FormatVerifier().score(text, _PROBLEM)
    assert (score.value, score.reason) == (value, reason)
