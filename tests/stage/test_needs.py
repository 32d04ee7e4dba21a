"""What a stage may do that has declared a need."""

from pathlib import Path

import pytest

from posttrain.pipeline.hermetic.system import CACHES
from posttrain.pipeline.hermetic.view import StageView
from posttrain.pipeline.slots import SLOTS, find_slot
from posttrain.stage.needs import BY_ROWS, KNOWN_NEEDS, LEAVES, SEVERAL, UNCONNECTED


@pytest.mark.parametrize(
    ("reach", "connects"),
    [((), False), (("sandbox",), False), (("endpoint",), True), (("sandbox", "ray"), True)],
)
def test_a_stage_connects_where_it_needs_more_than_the_sandbox(reach, connects):
    assert StageView("s", Path("/"), Path("/"), reach=frozenset(reach)).connects is connects


def test_every_need_is_one_of_the_table():
    assert {"hub", "endpoint"} == LEAVES
    assert {"ray", "processes"} == SEVERAL
    assert {"sandbox", "terminal"} == UNCONNECTED
    assert {declared for _, _, declared in CACHES.values()} - {""} <= KNOWN_NEEDS.keys()
    verifiers = find_slot("verifier").parts.values()
    assert {need for part in verifiers for need in part.NEEDS} == BY_ROWS
    assert "verifier" in SLOTS
