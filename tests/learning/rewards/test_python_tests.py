# ruff: noqa: E501 - programs stand as they are written
"""Programs judged by tests, and programs that would rather pass than be right."""

import json

import pytest

from posttrain.data.schemas import Problem
from posttrain.learning.rewards.verifiers.python_tests import PythonTestsVerifier
from posttrain.learning.rewards.verifiers.verilog import VerilogVerifier
from posttrain.learning.rewards.verify import verify, verify_all
from posttrain.stage.errors import UserError

ADD = ["assert add(2, 3) == 5", "assert add(-1, 1) == 0", "assert add(10, -4) == 6"]


pytestmark = pytest.mark.usefixtures("sandboxed")


def problem(tests, *, reference="", **parameters):
    """A problem with tests."""
    told = json.dumps({"python_tests": {"tests": tests, **parameters}})
    return Problem("code", "Write it.", reference, 1, "python_tests", told)


def scored(code, tests, **parameters):
    """Value and reason of a program."""
    asked = problem(tests, **{"seconds": 2.0, **parameters})
    score = verify(f"Here:\n```python\n{code}\n```\n", asked)
    return score.value, score.reason


def test_the_score_is_the_share_of_tests_that_pass():
    assert scored("def add(a, b):\n    return a + b", ADD) == (1.0, "correct")
    assert scored("def add(a, b):\n    return 0 if a < 0 else 5", ADD) == (2 / 3, "wrong_answer")
    assert scored("def add(a, b): return a * b", ADD) == (0.0, "wrong_answer")
    assert scored("def add(a, b) return", ADD) == (0.0, "error")
    assert scored("def plus(a, b): return a + b", ADD) == (0.0, "wrong_answer")


def test_many_answers_are_judged_at_once_in_their_order():
    texts = [
        "```\ndef add(a, b): return a + b\n```",
        "no code",
        "```\ndef add(a, b): return 5\n```",
    ]
    scores = verify_all([(text, problem(ADD)) for text in texts])
    assert [each.reason for each in scores] == ["correct", "no_answer", "wrong_answer"]
    assert scores[2].value == 1 / 3


def test_the_other_forms_of_tests():
    lines = [{"input": "3\n", "output": "9"}, {"input": "4", "output": "16\n"}]
    assert scored("print(int(input()) ** 2)", lines) == (1.0, "correct")
    assert scored("print(int(input()) * 3)", [*lines]) == (0.5, "wrong_answer")
    check = "def check(candidate):\n    assert candidate([3, 1]) == [1, 3]\ncheck(ordered)"
    assert scored("ordered = lambda x: sorted(x)", [check]) == (1.0, "correct")
    close = ["assert close(half(5), 2.5)", "assert math.isclose(half(1), 0.5)"]
    setup = "from math import isclose as close"
    assert scored("def half(x): return x / 2", close, setup=setup) == (1.0, "correct")


def test_what_programs_return_and_take_crosses_whole():
    same = "def same(x): return x"
    values = ["(1, 'a', None, True)", "{1: [2.5, {3}], 'b': (b'x', frozenset())}", "10**5000", "1j"]
    values += ["float('inf')", "'\\ud800\\n'", "[]", "-0.0"]
    tests = [
        f"assert same({each}) == {each} and type(same({each})) is type({each})" for each in values
    ]
    assert scored(same, tests) == (1.0, "correct")
    code = (
        "class Stack:\n    def __init__(self): self.held = []\n"
        "    def push(self, x): self.held.append(x)\n    def __len__(self): return len(self.held)\n"
        "def apply(f, xs): xs.append(9); return [f(x) for x in xs]\n"
        "def fail(): raise ValueError('no')\n"
    )
    tests = [
        "s = Stack(); s.push(3); s.push(4)\nassert len(s) == 2 and s.held == [3, 4]",
        "x = [1]\nassert apply(lambda v: v * 2, x) == [2, 18] and x == [1, 9]",
        "try:\n    fail()\nexcept ValueError as error:\n    assert str(error) == 'no'\n"
        "else:\n    assert False",
    ]
    assert scored(code, tests) == (1.0, "correct")


def test_a_test_that_takes_too_long_is_stopped_and_the_others_run():
    code = "def add(a, b):\n    while a < 0: pass\n    return a + b"
    assert scored(code, ADD, seconds=0.5) == (2 / 3, "timeout")
    assert scored("import time; time.sleep(60)", [{"input": "", "output": ""}], seconds=0.3) == (
        0.0,
        "timeout",
    )


FORGERIES = {
    "exit": "import sys\ndef add(a, b): sys.exit(0)",
    "exit at once": "import sys\nsys.exit(0)",
    "exit hard": "import os\ndef add(a, b): os._exit(0)",
    "equal to everything": "class E:\n def __eq__(s, o): return True\n def __ne__(s, o): return False\n"
    "def add(a, b): return E()",
    "a number equal to everything": "class E(int):\n def __eq__(s, o): return True\n"
    "def add(a, b): return E(99)",
    "say that it passed": 'print(\'["passed", "passed", "passed"]\', flush=True)\n'
    'import os\nfor n in range(3):\n    try: os.write(n, b\'["passed", "passed", "passed"]\')\n'
    "    except OSError: pass\ndef add(a, b): return 99",
    "patch": "import builtins, sys\nbuiltins.AssertionError = None\nsys.settrace(lambda *a: None)\n"
    "def add(a, b): return 99",
    "patch the judge's module": "import sys\nsys.modules['__main__'].judge = lambda *a: ['passed'] * 3\n"
    "def add(a, b): return 99",
    "names that tests use": "def all(x): return True\nabs = lambda x: 0\ndef add(a, b): return 99",
    "look through what is collected": "import gc\nfound = [x for x in gc.get_objects() if"
    " 'assert add' in str(x)[:2000]]\n"
    "def add(a, b): return eval(found[0].split('==')[1]) if found else 99",
    "read the judge's files": "import os\ndef add(a, b):\n"
    "    for p in [str(os.getppid()), '1', 'self']:\n"
    "        for n in ('mem', 'environ', 'cmdline', 'fd/0'):\n"
    "            try:\n"
    "                if b'assert' in open(f'/proc/{p}/{n}', 'rb').read(9999): return a + b\n"
    "            except OSError: pass\n    return 99",
    "write to the judge's output": "import os\ndef add(a, b):\n"
    "    for n in range(10):\n"
    "        try: open(f'/proc/{os.getppid()}/fd/{n}', 'wb').write(b'[\"passed\"]')\n"
    "        except OSError: pass\n    return 99",
    "end the judge": "import os\ndef add(a, b): os.kill(os.getppid(), 9)",
    "leave a module for the judge": "open('/tmp/work/heapq.py', 'w').write('import os; os.write(3,"
    ' b"[1]")\\nnlargest = lambda *a: [99]\')\ndef add(a, b): return 99',
    "leave a program for the judge": "open('/tmp/work/main.py', 'w').write('print([\"passed\"] * 3)')\n"
    "def add(a, b): import os; os._exit(1)",
    "read what lies about": "import os\ndef add(a, b):\n    found = ''\n"
    "    for place, _, files in os.walk('/tmp'):\n"
    "        for name in files: found += open(os.path.join(place, name)).read()\n"
    "    return a + b if 'add(10, -4)' in found else 99",
    "a message that never ends": "import os\ndef add(a, b):\n    for n in range(3, 20):\n"
    "        try: os.write(n, b'x' * 10000000)\n        except OSError: pass\n    return 99",
    "a deep answer": "def add(a, b):\n    x = []\n    for _ in range(100000): x = [x]\n    return x",
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_verdict_cannot_be_forged(name):
    tests = [*ADD[:2], "assert heapq.nlargest(1, [add(10, -4)]) == [6] and abs(add(1, 1)) == 2"]
    value, reason = scored(FORGERIES[name], tests)
    assert value == 0.0
    assert reason in ("wrong_answer", "timeout", "error")


@pytest.mark.parametrize(
    ("tests", "setup", "said"),
    [
        (["assert f() == 1"], "import no_such_package", "No module named 'no_such_package'"),
        (["assert f() == 1", "assert f( == 1"], "", "SyntaxError: .*test 2, line 1"),
        (["import no_such_package\nassert f() == 1"], "", "test 1 imports no_such_package"),
        (["assert f() == 1"], "raise SystemExit", "SystemExit"),
    ],
)
def test_tests_that_no_program_passes_are_refused_and_the_problem_named(tests, setup, said):
    with pytest.raises(UserError, match=f"problem .* of 'code': its tests cannot run.*{said}"):
        scored("def f(): return 1", tests, setup=setup)


def test_a_setup_that_takes_too_long_is_no_broken_one():
    tests = ["assert f() == 1"]
    asked = scored("def f(): return 1", tests, setup="import time; time.sleep(9)", seconds=0.5)
    assert asked == (0.0, "timeout")


@pytest.mark.slow
def test_a_name_of_python_is_the_programs_where_the_reference_defines_it():
    tests, reference = ["assert sum(2, 3) == 5"], "def sum(x, y):\n    return x + y"
    assert scored("def sum(a, b): return a + b", tests, reference=reference) == (1.0, "correct")
    assert scored("def sum(a, b): return a * b", tests, reference=reference)[0] == 0.0
    assert scored("def sum(a, b): return a + b", tests) == (0.0, "wrong_answer")
    # What the program has not defined is not taken from Python either, nor is another name given.
    assert scored("x = 1", ["assert sum([2, 3]) == 5"], reference=reference)[0] == 0.0
    forged = "def abs(x): return 0\ndef sum(a, b): return 99"
    assert scored(forged, ["assert abs(sum(2, 3) - 5) == 0"], reference=reference)[0] == 0.0
    assert scored("def f(): return 1", ["assert f() == 1"], reference="no Python")[0] == 1.0


def test_a_row_needs_no_reference():
    assert not PythonTestsVerifier.REFERENCE
    assert not VerilogVerifier.REFERENCE


def test_a_problem_without_tests_or_with_others_is_refused():
    with pytest.raises(UserError, match="has no tests; name the column that holds them in `param"):
        scored("x = 1", [])
    with pytest.raises(UserError, match=r"of 'code': PythonTestsVerifier.tests.0"):
        scored("x = 1", [{"output": "3"}])
