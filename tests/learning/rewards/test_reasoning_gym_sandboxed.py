"""The generators whose scorers evaluate the answer: all are scored, and none runs code."""

import json

import pytest

from posttrain.data.gym_generators import SANDBOXED
from posttrain.data.schemas import Problem
from posttrain.data.sources.reasoning_gym import ReasoningGymSource
from posttrain.learning.rewards.verifiers.reasoning_gym_sandboxed import (
    SandboxedGymVerifier,
    may_be_scored,
)
from posttrain.learning.rewards.verifiers.registry import VERIFIERS

ENTRY = {"answer": "1 2", "metadata": {}}


@pytest.mark.parametrize(
    ("generator", "answer", "plain"),
    [
        ("spiral_matrix", "[1, 2]", True),
        ("spiral_matrix", "1 2", True),
        ("spiral_matrix", "2 1", False),
        ("n_queens", "[['_', 'Q']]", True),
        ("string_insertion", "['A', 'B']", True),
        ("string_insertion", "__import__('os').system('x')", False),
        ("string_insertion", "[].__class__", False),
        ("simple_integration", "-34*x**8/15 - 5*x/4 + C", True),
        ("intermediate_integration", "-4*(-2*x - 8)**(3/2)/3 + sin(x)*pi + exp(-x)", True),
        ("simple_integration", "Integral(4*x, x)", False),
        ("simple_integration", "sin.__globals__", False),
        ("simple_integration", "exec('x')", False),
        ("simple_integration", "(lambda: 1)()", False),
        ("simple_integration", "'a' * 3", False),
        ("simple_integration", "x if x else y", False),
        ("simple_integration", "sqrt(x, evaluate=False)", False),
        ("polynomial_multiplication", "[y for y in x]", False),
        ("codeio", '{"a": 1}', True),
        ("simple_integration", "x+" * 2000 + "1", False),
    ],
)
def test_only_what_is_plain_gets_to_a_scorer(generator, answer, plain):
    assert may_be_scored(generator, answer, ENTRY) is plain


def test_a_source_of_such_a_generator_takes_the_sandboxed_verifier_by_itself():
    assert VERIFIERS.parts["reasoning_gym_sandboxed"] is SandboxedGymVerifier
    given = {"kind": "reasoning_gym", "levels": (1,), "graded": ("x",)}
    assert ReasoningGymSource(**given, name="n_queens").verifier.kind == "reasoning_gym_sandboxed"
    assert ReasoningGymSource(**given, name="chain_sum").verifier.kind == "reasoning_gym"
    exact = ReasoningGymSource(**given, name="n_queens", verifier="exact")
    assert exact.verifier.kind == "exact"


@pytest.mark.slow  # sympy and the library are imported in the sandbox
@pytest.mark.usefixtures("sandboxed")
def test_each_generator_scores_right_wrong_and_endless_answers():
    import reasoning_gym

    problems, texts, wanted = [], [], []
    for name in sorted(SANDBOXED):
        entry = reasoning_gym.create_dataset(name, size=1, seed=1)[0]
        metadata = json.dumps(entry["metadata"], default=str)
        problem = Problem(name, entry["question"], str(entry["answer"]), 1, "x", metadata)
        problems += [problem, problem]
        texts += [str(entry["answer"]), "7"]
        wanted += ["correct", "wrong_answer"]
    (integral,) = [each for each in problems[::2] if each.source == "simple_integration"]
    problems += [integral, integral]
    texts += ["9**9**9**9**9 + x", "__import__('os')._exit(0)"]
    verifier = SandboxedGymVerifier(answer="whole", seconds=1.0)
    scores = verifier.verify(texts, problems)
    assert [score.reason for score in scores[:-2]] == wanted
    assert scores[-2].reason in ("timeout", "wrong_answer", "error")
    assert scores[-1].reason == "not_plain"
