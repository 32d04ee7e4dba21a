"""What a terminal shows at three moments of a stage."""

import io

from rich.console import Console

from posttrain.pipeline.execution.display import LiveDisplay


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
        display.finished("rl", "failed", 2.5)
        assert not shown(display).strip()
    lines = [line.strip() for line in page.getvalue().splitlines() if line.strip()]
    assert "running    rl           paths: was [/tmp]" in lines
    assert "FAILED     rl           2.5 s" in lines
