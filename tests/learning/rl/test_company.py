"""Parts that mean something together are refused where one stands without the others."""

import pytest

from posttrain.learning.rl.company import refuse_without_company
from posttrain.stage.errors import UserError
from posttrain.stage.spec import Dag, Stage
from tasks.rl import TASK
from tasks.rl.config import RlStageConfig

ALL = {
    "producer": "two_orders",
    "draw": {"sampler": "uniform", "select": "told_in_order"},
    "reward": {"components": {"right": "verifier", "order": "order"}},
}


def config(**values):
    return RlStageConfig.parse({"draw": {"sampler": "uniform"}, **values}, where="rl")


def test_all_of_them_stand_together_and_so_do_none():
    for values in (ALL, {}):
        refuse_without_company(config(**values), "rl")


@pytest.mark.parametrize(
    ("left_out", "sentence"),
    [
        ("producer", "component.order goes with producer.two_orders, which"),
        ("draw", "component.order goes with selection.told_in_order, which"),
        ("reward", "selection.told_in_order goes with component.order, which"),
    ],
)
def test_two_without_the_third_are_refused_where_the_recipe_is_read(left_out, sentence):
    two = config(**{name: each for name, each in ALL.items() if name != left_out})
    with pytest.raises(UserError, match=sentence):
        TASK.refuse(Stage("rl", TASK, two, {}), Dag())


def test_one_alone_names_both():
    with pytest.raises(UserError) as caught:
        refuse_without_company(config(reward=ALL["reward"]), "rl")
    assert str(caught.value) == (
        "rl: component.order goes with producer.two_orders and selection.told_in_order, which the"
        " stage does not have; set what is missing, or take component.order away"
    )
