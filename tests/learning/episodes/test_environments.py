"""The environments that ship: what they answer, by hand."""

import pytest

from posttrain.data.schemas import Problem
from posttrain.learning.episodes.environments.base import POLICY, Act, Ask, Told
from posttrain.learning.episodes.environments.calculator import Calculator, computed
from posttrain.learning.episodes.registry import EPISODE_ENVIRONMENTS

NEEDED = {"corpus": {"file": "notes.jsonl"}}
"""Settings without a default."""
PROBLEM = Problem("sums", "12 * 34 =", "408", 1, "exact")


@pytest.mark.parametrize(
    "kind",
    [
        kind
        for kind, part in EPISODE_ENVIRONMENTS.parts.items()
        # Worlds pose problems; servers of others, and several worlds, have tests of their own.
        if not hasattr(part, "pose") and kind not in ("mcp", "openenv", "several")
    ],
)
def test_they_begin_by_asking_and_are_the_same_again(kind):
    environment = EPISODE_ENVIRONMENTS.parse({"kind": kind, **NEEDED.get(kind, {})})
    first = environment.start(PROBLEM, 3)
    assert {ask.role for ask in first.asks} == {POLICY}
    act = [Act(ask.role, "#### 408") for ask in first.asks]
    assert environment.step(first.state, act, 4) == environment.step(first.state, act, 4)


@pytest.mark.parametrize(
    ("text", "value"),
    [("12 * 34", 408), ("2*(3+4)", 14), ("-7 // 2", -4), ("7 % 4", 3), (" 5 ", 5)],
)
def test_it_computes(text, value):
    assert computed(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "", "a", "1 +", "2 ** 99", "1.5", "True", "__import__('os')", "f(1)", "[1]", "1 < 2",
        "1" * 300, "9" * 31, "(" * 150 + "1" + ")" * 150, "1, 2", "'1' * 3",
    ],
)  # fmt: skip
def test_what_is_no_sum_is_refused(text):
    with pytest.raises(ValueError, match="not a sum of whole numbers"):
        computed(text)


def test_a_call_at_the_end_of_a_turn_is_answered():
    said = Act(POLICY, "First:\ncalculate(12 * 34)\n")
    found = Calculator().step({}, [said], 0)
    assert found.asks == (Ask(POLICY, (Told("tool:calculate", "408"),)),)
    wrong = Calculator(author="user").step({}, [Act(POLICY, "calculate(1 // 0)")], 0)
    assert wrong.asks[0].new == (Told("user", "division by zero"),)


def test_of_several_calls_in_a_line_the_last_is_answered():
    said = Act(POLICY, "calculate(1 + 1) = 2, so calculate(2 + 2)")
    assert Calculator().step({}, [said], 0).asks[0].new[0].text == "4"


@pytest.mark.parametrize(
    "said",
    [
        Act(POLICY, "calculate(1 + 1) is 2\n#### 2"),
        Act(POLICY, "recalculate(1 + 1)"),
        Act(POLICY, "calculate(1 + 1)", cut=True),
    ],
)
def test_a_turn_without_a_call_at_its_end_is_the_last(said):
    assert Calculator().step({}, [said], 0).asks == ()
