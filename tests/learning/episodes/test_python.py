"""Python in the sandbox: what is run, what is told, and that a round runs side by side."""

import pytest

from posttrain.backends.sandbox.program import ProgramEnd
from posttrain.learning.episodes.environments import sandboxed as seam
from posttrain.learning.episodes.environments.base import POLICY, Act, Ask, Said, Told
from posttrain.learning.episodes.environments.python import Python, last_block


def block(code):
    return Act(POLICY, f"So:\n```python\n{code}\n```\n")


def told(environment, end):
    (ask,) = environment.answered({}, [block("x")], [end]).asks
    return ask.new[0].text


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("```\nx\n```", "x\n"),
        ("```py\nx\n```\n\n", "x\n"),
        ("```python\nx\n```\nand\n```python\ny\n```", "y\n"),
        ("```python\nx\n```\nis it", None),
        ("```bash\nx\n```", None),
        ("```python\n\n```", None),
        ("```python\nx", None),
        ("", None),
    ],
)
def test_the_block_that_a_turn_ends_with_is_run(text, code):
    assert last_block(text) == code


def test_what_was_cut_off_is_not_run():
    assert Python().programs({}, [block("x")._replace(cut=True)]) == []


@pytest.mark.parametrize(
    ("end", "text"),
    [
        (ProgramEnd("exit", 0, b"42\n", b"", 0.1), "42"),
        (ProgramEnd("exit", 0, b"", b"warning", 0.1), "nothing printed"),
        (ProgramEnd("exit", 0, b"123456", b"", 0.1), "12345 ..."),
        (ProgramEnd("exit", 1, b"1\n", b"Trace\nKey:", 0.1), "1\nKey:"),
        (ProgramEnd("exit", 3, b"", b"", 0.1), "exit code 3"),
        (ProgramEnd("signal", 9, b"", b"", 0.1), "signal 9"),
        (ProgramEnd("time", None, b"1\n", b"", 0.1), "1\nstopped: time"),
        (ProgramEnd("lost", None, b"", b"", 0.0), "stopped: lost"),
    ],
)
def test_what_is_told_of_an_end(end, text):
    assert told(Python(most_characters=5), end) == text


@pytest.mark.usefixtures("sandboxed")
def test_programs_of_a_round_run_in_sandboxes_and_each_episode_reads_its_own():
    environment = Python(seconds=5)
    said = [block("print(6 * 7)"), Act(POLICY, "42"), block("1 / 0")]
    turns = [Said({}, [act], 0) for act in said]
    first, answer, failed = environment.step_all(turns)
    assert first.asks == (Ask(POLICY, (Told("tool:python", "42"),)),)
    assert first.facts == {"tool_errors": 0.0}
    assert answer.asks == ()
    assert failed.asks[0].new[0].text == "ZeroDivisionError: division by zero"
    assert failed.facts == {"tool_errors": 1.0}
    assert environment.step(*turns[0]) == first


def test_who_ends_its_own_sandbox_is_told_so_and_without_room_the_episode_failed(monkeypatch):
    lost = ProgramEnd("lost", None, b"", b"", 0.0)
    well = ProgramEnd("exit", 0, b"", b"", 0.0)

    def running(harmless):
        def run(programs):
            return [harmless if b"b'x' *" in each.files["main.py"] else lost for each in programs]

        return run

    monkeypatch.setattr(seam, "run_programs", running(well))
    ended = Python().step({}, [block("x")], 0)
    assert (ended.failed, ended.asks[0].new[0].text) == ("", "stopped: lost")
    monkeypatch.setattr(seam, "run_programs", running(lost))
    assert Python().step({}, [block("x")], 0).failed == "no room for a sandbox"
