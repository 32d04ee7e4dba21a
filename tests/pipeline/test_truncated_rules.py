"""Stages that judge an answer that was cut off in different ways are named with their rules."""

import pytest

from posttrain.operations.plan_notes import disagreement
from posttrain.stage.config import StageConfig
from posttrain.stage.spec import Dag, Stage, Task
from tasks.evaluate import TASK as EVALUATE
from tasks.probe import TASK as PROBE
from tasks.rl import TASK as RL


def flow(probe, rl, evaluate):
    sections = {
        "probe": (PROBE, {"truncated": probe}),
        "rl": (RL, {"reward": {"components": {"correct": "verifier"}, "truncated": rl}}),
        "evaluate": (EVALUATE, {"truncated": evaluate}),
        "other": (Task("tasks.other", StageConfig, {}, {}), {}),
    }
    return Dag(
        {
            name: Stage(name, task, task.config.parse(values, where=name), {})
            for name, (task, values) in sections.items()
        }
    )


@pytest.mark.parametrize(
    "rules", [("fails", "fails", "fails"), ("counts", "masked", "counts"), ("dropped",) * 3]
)
def test_stages_that_agree_are_not_named(rules):
    assert disagreement(flow(*rules)) is None


def test_the_stages_of_each_rule_are_named():
    assert disagreement(flow("counts", "fails", "counts")) == (
        "answers cut off at max_tokens are judged in more than one way (probe, evaluate: counts;"
        " rl: fails), so that their solve rates are not comparable; set `truncated` to one rule in"
        " all of them"
    )
    assert "probe, rl: dropped; evaluate: counts" in disagreement(
        flow("dropped", "dropped", "counts")
    )
