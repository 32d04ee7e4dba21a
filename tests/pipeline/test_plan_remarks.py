"""What stages remark on their own values is said once, for all of which it is true."""

from posttrain.cli.plan_notes import remarks_on
from posttrain.stage.spec import Dag, Stage
from tasks.rl import TASK as RL

CLIPPED = {"surrogate": "clip"}


def flow(**sections):
    return Dag(
        {
            name: Stage(name, RL, RL.config.parse({"algorithm": values}, where=name), {})
            for name, values in sections.items()
        }
    )


def test_equal_remarks_of_several_stages_are_one():
    found = remarks_on(flow(rl_a=CLIPPED, rl_b=CLIPPED, rl_c={"surrogate": "reinforce"}))
    (said,) = [each for each in found if "clip never sees a ratio other than 1" in each]
    assert said.startswith("rl_a, rl_b: surrogate clip ")


def test_a_stage_without_remarks_is_not_named():
    assert remarks_on(flow(rl={"surrogate": "reinforce"})) == []
