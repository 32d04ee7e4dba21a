"""Repair: what commands do, that a repair pays, and that nothing else does."""

import json
from random import Random

import pytest

from posttrain.backends.sandbox.program import ProgramEnd
from posttrain.learning.episodes.environments.base import POLICY, Act
from posttrain.learning.episodes.worlds.repair import Repair

WORLD = Repair()
FILES = {
    "a.py": ["def a1(x, y):", "    # x * 2 + y", "    return x * 3 + y"],
    "test.py": ["import a; r = a.a1(2, 3)", "assert r == 7, 'a1 7 not %s' % r"],
}
RIGHT = {**FILES, "a.py": [*FILES["a.py"][:2], "    return x * 2 + y"]}
HIDDEN = [["a", "a1", [4, 5], 13], ["a", "a1", [6, 7], 19]]


def begun(**facts):
    given = {"files": FILES, "right": RIGHT, "hidden": HIDDEN, "left": 8}
    return WORLD.begin({**given, **facts}, 0).state


def said(state, *texts):
    for text in texts:
        found = WORLD.step(state, [Act(POLICY, text)], 0)
        state = found.state
    return found


def told(situation):
    return situation.asks[0].new[0].text


def ended(values, wrong, *, before=""):
    output = f"{before}{json.dumps(values)}\n{json.dumps(wrong)}\n".encode()
    return WORLD.answered(begun(), [Act(POLICY, "test")], [ProgramEnd("exit", 0, output, b"", 0)])


def test_files_are_listed_read_and_written():
    assert told(said(begun(), "ls")) == "a.py test.py"
    shown = told(said(begun(), "set a.py 3 return  y ", "cat a.py"))
    assert shown == "1 def a1(x, y):\n2     # x * 2 + y\n3     return  y"


@pytest.mark.parametrize(
    "text",
    [
        "cat b.py", "cat", "set a.py 4 x", "set a.py 0 x", "set a.py ² x", "set ..run 1 x",
        "rm a.py", "set a.py 1 " + "x" * 201, "set a.py 1 x\ny", "set a.py 99999999 x", "",
    ],
)  # fmt: skip
def test_what_is_no_command_changes_nothing_and_is_counted(text):
    found = said(begun(), text)
    assert told(found) == "no such command"
    assert found.facts == {"tool_errors": 1.0}
    assert found.state["files"] == FILES


def test_hidden_calls_pay_and_tests_that_pass_do_not():
    assert ended([13, 19], "").earned == {POLICY: 1.0}
    for values in ([13, 20], [13], [], [13, None], [13.5, 19]):
        found = ended(values, "")
        assert (found.earned, found.asks) == ({}, ())
    assert told(ended([13, 19], "AssertionError a1")) == "AssertionError a1"
    # Whoever writes first writes what counts as values, and right ones are not in the sandbox.
    assert ended([13, 19], "", before="[1, 2]\n").earned == {}
    assert told(ended([], "", before="what\n")) == "no verdict"


def test_the_script_undoes_what_it_was_made_to_break():
    state = begun(files={**FILES, "a.py": ["def b(x):", *RIGHT["a.py"][1:]]})
    assert WORLD.best_move(state, POLICY, None) == "test"
    state = {**state, "seen": "test"}
    assert WORLD.best_move(state, POLICY, None) == "cat a.py"
    assert WORLD.best_move({**state, "seen": "a.py"}, POLICY, None) == "set a.py 1 def a1(x, y):"


def test_turns_run_out():
    assert said(begun(left=1), "ls").asks == ()


def test_problems_have_one_wrong_line():
    for seed in range(20):
        _, facts = WORLD.pose(Random(seed))
        pairs = [
            (line, other)
            for name, lines in facts["right"].items()
            for line, other in zip(lines, facts["files"][name], strict=True)
        ]
        assert sum(line != other for line, other in pairs) == 1


@pytest.mark.usefixtures("sandboxed")
def test_in_the_sandbox_the_repair_pays_and_a_changed_test_does_not():
    assert told(said(begun(), "test")) == "AssertionError a1 7 not 9"
    assert said(begun(), "set a.py 3 return x * 2 + y", "test").earned == {POLICY: 1.0}
    # The tests put right in memory what is wrong in the file: the values are written by then.
    patch = "import a; a.a1 = lambda x, y: x * 2 + y; r = 7"
    changed = said(begun(), f"set test.py 1 {patch}", "test")
    assert (changed.earned, changed.asks) == ({}, ())
    rude = said(begun(), "set a.py 3 import os; os._exit(0)", "test")
    assert told(rude) == "no verdict"
