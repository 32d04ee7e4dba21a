"""What a terminal shows at three moments of a stage."""

import io
import sys

import pytest
from rich.console import Console

from posttrain.pipeline.execution.display import LiveDisplay, PlainDisplay


def shown(display):
    """The bars as they are at this moment, as plain text."""
    page = io.StringIO()
    Console(file=page, width=100).print(display._bars.get_renderable())
    return page.getvalue()


def test_the_bars_follow_a_stage_and_claim_no_time_that_they_do_not_know():
    page = io.StringIO()
    with LiveDisplay(Console(file=page, width=100)) as display:
        assert "starting" in shown(display)
        display.started("rl", ["paths: was [/tmp]"])
        assert "starting" not in shown(display)
        assert "rl" in shown(display)
        assert "left" not in shown(display)
        display.progress("rl", 3, 8, "step")
        assert "3/8 step" in shown(display)
        assert shown(display).rstrip().endswith("left")
        display.noted("rl", "resuming after step 3 of 8")
        display.finished("rl", "failed", 2.5)
        assert not shown(display).strip()
    lines = [line.strip() for line in page.getvalue().splitlines() if line.strip()]
    assert "running    rl           paths: was [/tmp]" in lines
    assert "rl           resuming after step 3 of 8" in lines
    assert "FAILED     rl           2.5 s" in lines


class Pipe(io.StringIO):
    """A stream that remembers what was written at once."""

    def __init__(self):
        super().__init__()
        self.pieces = []

    def write(self, text):
        self.pieces.append(text)
        return super().write(text)


def test_in_a_pipe_each_line_names_its_stage_and_is_written_in_one_piece(monkeypatch):
    pipe = Pipe()
    monkeypatch.setattr(sys, "stderr", pipe)
    monkeypatch.setattr("posttrain.pipeline.execution.display._PLAIN_SECONDS", 0.0)
    display = PlainDisplay()
    for stage in ("rl", "reward"):
        display.started(stage, ["input policy changed", "code changed"])
    for stage in ("rl", "reward"):
        display.progress(stage, 3, 8, "step")
        display.finished(stage, "succeeded", 2.5)
    assert pipe.pieces == [
        "rl: running (input policy changed and 1 more)\n",
        "reward: running (input policy changed and 1 more)\n",
        "rl: step 3/8\n",
        "rl: ran in 2.5 s\n",
        "reward: step 3/8\n",
        "reward: ran in 2.5 s\n",
    ]


@pytest.mark.slow
def test_of_a_stages_notes_the_one_is_shown_that_says_where_it_goes_on(toy, edit):
    """As it is printed by the loops of training: tests of theirs hold the words."""
    notes = """
    context.note("resuming after step 4 of 10")
    context.note("another one")
    context.progress(1, 1)
"""
    edit(toy.root / toy.package / "stage.py", "    context.progress(1, 1)\n", notes)
    done = toy.cli("run", "--local")
    assert done.returncode == 0, done.stderr
    assert "first: resuming after step 4 of 10\n" in done.stderr
    assert "another one" not in done.stderr
