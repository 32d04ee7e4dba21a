from typing import get_args

import polars as pl
import pytest

from posttrain.data.filters.apply import ORDERS, RowOrder
from tasks.curate.config import CurateConfig

_FRAME = pl.DataFrame(
    {
        "id": ["d", "a", "c", "b"],
        "difficulty": [1, 2, 1, 1],
        "text": ["xx", "x", "xxx", "xxx"],
    }
)


@pytest.mark.parametrize(
    ("order", "ids"),
    [
        ("easy_to_hard", ["b", "c", "d", "a"]),
        ("easy_to_hard_then_short", ["d", "b", "c", "a"]),
        ("mixed", ["a", "b", "c", "d"]),
    ],
)
def test_each_order_for_every_order_of_the_input(order, ids):
    assert ORDERS[order](_FRAME)["id"].to_list() == ids
    assert ORDERS[order](_FRAME.reverse())["id"].to_list() == ids


def test_problems_are_measured_by_their_prompts():
    problems = _FRAME.rename({"text": "prompt"})
    assert ORDERS["easy_to_hard_then_short"](problems)["id"].to_list() == ["d", "b", "c", "a"]


def test_the_recipe_and_the_code_know_the_same_orders():
    allowed = get_args(CurateConfig.model_fields["order"].annotation)
    assert allowed == get_args(RowOrder) == tuple(ORDERS)
