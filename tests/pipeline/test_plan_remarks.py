"""What stages remark on their own values is said once, for all of which it is true."""

from posttrain.operations.plan_notes import remarks_on
from posttrain.stage.spec import Dag, Stage
from tasks.evaluate import TASK as EVALUATE
from tasks.rl import TASK as RL

CLIPPED = {"surrogate": "clip"}


def stage(task, name, **values):
    return Stage(name, task, task.config.parse(values, where=name), {})


def flow(**sections):
    return Dag({name: stage(RL, name, algorithm=values) for name, values in sections.items()})


def test_equal_remarks_of_several_stages_are_one():
    found = remarks_on(flow(rl_a=CLIPPED, rl_b=CLIPPED, rl_c={"surrogate": "reinforce"}))
    (said,) = [each for each in found if "clip never sees a ratio other than 1" in each]
    assert said.startswith("rl_a, rl_b: surrogate clip ")


def test_a_stage_without_remarks_is_not_named():
    assert remarks_on(flow(rl={"surrogate": "reinforce"})) == []


def test_what_drawing_under_a_mask_costs_is_said():
    masked = stage(RL, "rl", draw={"mask": "nucleus"})
    (said,) = [each for each in remarks_on(Dag({"rl": masked})) if "mask" in each]
    assert said.startswith("rl: draw.mask: each token is drawn by reading the whole text before it")


def test_an_environment_that_is_not_exact_is_remarked_on_wherever_it_stands():
    server = {"kind": "mcp", "command": ["python", "tools.py"]}
    played = {"kind": "episodes", "environment": server}
    rl, evaluate = stage(RL, "rl", producer=played), stage(EVALUATE, "after", environment=server)
    calculator = stage(EVALUATE, "before", environment="calculator")
    found = remarks_on(Dag({"rl": rl, "after": evaluate, "before": calculator}))
    (said,) = [each for each in found if "environment" in each]
    assert said.startswith("rl, after: environment mcp: ")
    assert "only replay from stored rows is exact" in said
