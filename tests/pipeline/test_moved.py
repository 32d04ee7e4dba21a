"""The table of moves since 0.1: a stale line would make results of then look changed."""

import importlib.util

from posttrain.pipeline.moved import MOVED


def test_every_module_is_where_the_table_says():
    assert [new for new in MOVED.values() if importlib.util.find_spec(new) is None] == []
