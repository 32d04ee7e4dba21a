"""A model as the verifier: what it is asked, how its reply becomes a score, what is refused."""

import json

import pytest

from posttrain.backends.endpoint.config import filled
from posttrain.data.schemas import Problem
from posttrain.learning.rewards.score import Score
from posttrain.learning.rewards.verifiers.judge import JudgeVerifier
from posttrain.learning.rewards.verify import metadata_for, verify, verify_all
from posttrain.stage.errors import UserError


def problem(server, prompt="2 + 3 =", **fields):
    judge = JudgeVerifier(endpoint=server.endpoint(concurrency=4), **fields)
    return Problem("own", prompt, "2 + 3\n#### 5", 1, "judge", metadata_for(judge))


def test_the_rubric_is_filled_in_and_the_last_grade_counts(server):
    server.reply = lambda _body: "It says Score: 2 itself.\nScore: 10"
    asked = problem(server, template="Q {prompt} R {answer} A {completion}")
    assert verify("five {answer}", asked) == Score(1.0, "correct")
    # What the policy wrote is not a template.
    assert server.requests[0]["messages"][0]["content"] == "Q 2 + 3 = R 5 A five {answer}"
    assert server.requests[0]["temperature"] == 0


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("Score: 10", Score(1.0, "correct")),
        ("Score: 8", Score(1.0, "correct")),
        ("Score: 5", Score(0.5, "wrong_answer")),
        ("Score: 2.75", Score(0.125, "wrong_answer")),
        ("Score: -3", Score(0.0, "wrong_answer")),
        ("I like it", Score(None, "no_grade")),
        ("", Score(None, "no_grade")),
    ],
)
def test_grades_are_linear_from_worst_to_accept(server, reply, expected):
    """Worst 2, accept 8: 5 is half of the way, 2.75 an eighth."""
    judge = JudgeVerifier(endpoint=server.endpoint(), worst=2, accept=8)
    assert judge.grade(reply) == expected


def test_a_grade_that_is_no_number_is_none(server):
    judge = JudgeVerifier(endpoint=server.endpoint(), pattern=r"Grade: (\w+)")
    assert judge.grade("Grade: good") == Score(None, "no_grade")


def test_many_answers_are_judged_at_once_and_each_only_once(server):
    server.delay, server.together = 0.05, 4
    server.reply = lambda body: f"Score: {10 * body['messages'][0]['content'].endswith('right')}"
    rubric = {"template": "{prompt} {completion}"}
    judged = [problem(server, f"q{i}", **rubric) for i in range(8)]
    exact = Problem("own", "2 + 3 =", "5", 1, "exact")
    answers = [("right" if i % 2 else "no", each) for i, each in enumerate(judged)]
    answers.insert(3, ("#### 5", exact))
    found = [score.value for score in verify_all(answers)]
    assert found == [0, 1, 0, 1, 1, 0, 1, 0, 1]
    assert server.most_running == 4
    assert [score.value for score in verify_all(answers)] == found
    assert len(server.requests) == 8


def test_a_problem_without_a_judge_is_named():
    with pytest.raises(UserError, match="of 'own': JudgeVerifier.endpoint: a value is required"):
        verify("5", Problem("own", "2 + 3 =", "5", 1, "judge"))
    broken = json.dumps({"judge": {"endpoint": {"base_url": "nowhere", "model": "m"}}})
    with pytest.raises(UserError, match=r"JudgeVerifier.endpoint: base_url must be like"):
        verify("5", Problem("own", "2 + 3 =", "5", 1, "judge", broken))


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"template": "{prompt}"}, "must contain {completion}"),
        ({"pattern": "Score"}, "must have one group"),
        ({"pattern": "("}, "no regular expression"),
        ({"accept": 0}, "accept must be above worst"),
    ],
)
def test_a_rubric_that_cannot_grade_is_refused(server, fields, wrong):
    values = {"endpoint": server.endpoint().model_dump(), **fields}
    with pytest.raises(UserError, match=wrong):
        JudgeVerifier.parse(values, where="synthesize.sources.0.judge")


def test_filling_is_done_at_once():
    assert filled("{a}{b}{c}", a="{b}", b="{a}") == "{b}{a}{c}"
