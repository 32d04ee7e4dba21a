"""The table of moves since 0.1: a stale line would make results of then look changed."""

import importlib.util
from pathlib import Path

from posttrain.pipeline.moved import MOVED, TAKEN_APART
from posttrain.provenance.code import Renaming

MODULES = (Path(__file__).parent / "modules_0_1.txt").read_text().split()
"""Every module of 0.1."""


def test_every_module_is_where_the_table_says():
    targets = [*MOVED.values(), *TAKEN_APART.values()]
    assert [new for new in targets if importlib.util.find_spec(new) is None] == []


def test_every_module_of_0_1_has_a_place_today():
    names = Renaming(MOVED)
    assert len(MODULES) > 400
    lost = [
        module
        for module in MODULES
        if module not in TAKEN_APART and not _exists(names.current(module))
    ]
    assert lost == []


def test_the_table_names_modules_of_then_and_no_two_become_one():
    assert {*MOVED, *TAKEN_APART} - {*MODULES} == set()
    assert len({*MOVED.values()}) == len(MOVED)
    assert not MOVED.keys() & TAKEN_APART.keys()


def _exists(module):
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False
