import importlib.util
import threading

import pytest

from posttrain.data.schemas import Problem
from posttrain.learning.rewards.verifiers import math_worker
from posttrain.learning.rewards.verifiers.math import MathVerifier
from posttrain.learning.rewards.verify import metadata_for, verify, verify_all
from posttrain.stage.errors import UserError

# In processes of its own it is imported, not here.
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("math_verify") is None, reason="math-verify is not installed"
)


def problem(right, **fields):
    return Problem("algebra", "Solve.", right, 1, "math", metadata_for(MathVerifier(**fields)))


def reason(answer, right):
    return verify(f"so \\boxed{{{answer}}}", problem(right)).reason


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("1/2", r"\frac{2}{4}"),
        ("0.5", r"\frac12"),
        ("x^2 + 1", "1 + x^2"),
        (r"2\sqrt{2}", r"\sqrt 8"),
        (r"\{1, 2\}", r"\{2, 1\}"),
        ("x = 5", "5"),
        ("1,234", "1234"),
        ("[0, 1)", "so it is \\boxed{[0,1)}"),
    ],
)
def test_equal_expressions_are_equal(answer, right):
    assert reason(answer, right) == "correct"


@pytest.mark.parametrize(
    ("answer", "right", "said"),
    [
        ("3", "4", "wrong_answer"),
        (r"\frac{1}{3}", "0.333", "wrong_answer"),
        ("[0, 1)", "(0, 1)", "wrong_answer"),
        (r"\int", "4", "not_math"),
        ("1" * 1001, "4", "not_math"),
        # Nothing is run: as LaTeX this is nothing, and that a product of letters.
        ("__import__('os').getpid()", "4", "not_math"),
        ("import os", "4", "wrong_answer"),
    ],
)
def test_what_is_wrong_says_why(answer, right, said):
    assert reason(answer, right) == said


def test_what_takes_for_ever_is_not_judged_and_the_next_one_is():
    """A tower of powers is bigger than any memory; all in a thread, which no signal reaches."""
    answers = [r"\boxed{9^{9^{9^{9}}}}", r"\boxed{2}", "2"]
    # A machine that is busy takes its time over the others.
    limits = [0.5, 60.0, 60.0]
    asked = [(t, problem("2", seconds=each)) for t, each in zip(answers, limits, strict=True)]
    scores = []
    thread = threading.Thread(target=lambda: scores.extend(verify_all(asked)))
    thread.start()
    thread.join()
    assert scores[0].value is None
    assert scores[0].reason in ("timed_out", "stopped")
    assert [score.reason for score in scores[1:]] == ["correct", "no_answer"]


@pytest.mark.slow
def test_a_worker_that_died_is_started_again():
    worker = math_worker.MathWorker()
    assert worker.compare("1", "1", seconds=30) == "equal"
    worker._process.kill()
    worker._process.wait()
    assert worker.compare("1", "2", seconds=30) == "different"
    worker._process.stdin.close()
    assert worker._process.wait(30) == 0


def test_a_reference_that_is_no_expression_is_refused():
    with pytest.raises(UserError, match="its answer is '.+int', which is no expression"):
        reason("1", r"\int")


def test_without_the_package_the_install_line_is_said(monkeypatch):
    monkeypatch.setattr(math_worker, "find_spec", lambda _name: None)
    with pytest.raises(UserError, match=r"pip install 'posttrain\[math\]'"):
        reason("1", "1")
