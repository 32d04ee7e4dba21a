"""Programs that try to get out: each is contained, and leaves nothing behind."""

import pytest

from benchmarks.reliability.escapes import ESCAPES
from benchmarks.reliability.escapes.attempts import achieved, outside, program_of, surroundings
from posttrain.backends.sandbox.launch import Sandbox
from posttrain.backends.sandbox.program import Program

pytestmark = pytest.mark.usefixtures("sandboxed")

QUICK = {
    "read a file of the user",
    "write over a module of Python",
    "end the keeper",
    "take an open file of the keeper",
    "outlive the run",
    "fork bomb",
    "memory: of all processes together",
    "disk: empty files",
    "output without end",
    "connect to a server without a file",
    "reach the host of a virtual machine",
    "read secrets of the environment",
    "namespaces of its own",
    "become root",
}


def cases():
    """All attempts; some are quick tests, and all together take half a minute."""
    return [
        pytest.param(each, id=each.name, marks=() if each.name in QUICK else pytest.mark.slow)
        for each in ESCAPES
    ]


@pytest.fixture(scope="module")
def around():
    with surroundings() as made:
        yield made


def test_there_are_at_least_sixty_and_each_name_is_its_own():
    assert len({each.name for each in ESCAPES}) == len(ESCAPES) >= 60
    assert {each.name for each in ESCAPES} >= QUICK


@pytest.mark.parametrize("escape", cases())
def test_an_attempt_is_contained(escape, around):
    end = Sandbox().run(program_of(escape, around))
    assert achieved(escape, end, around) == ""


@pytest.mark.slow  # a process each, fifteen of them
def test_harmless_attempts_succeed_without_a_sandbox(around):
    harmless = [each for each in ESCAPES if each.outside]
    assert len(harmless) >= 10
    assert [each.name for each in harmless if not outside(each, around)] == []


def test_what_an_attempt_achieves_is_told(around):
    escape = next(each for each in ESCAPES if each.ends == {"processes"})
    loud = Sandbox().run(Program.of("python", "print('ESCAPED', 7)"))
    assert achieved(escape, loud, around) == "ESCAPED 7"
    quiet = Sandbox().run(Program.of("python", "pass"))
    assert achieved(escape, quiet, around).startswith("it ended by exit 0")
    (around.canary).write_text("changed")
    last = ESCAPES[0]
    assert achieved(last, quiet, around) == "the file of the user was changed"
    around.canary.write_text("what the user wrote")
    assert achieved(last, quiet, around) == ""
