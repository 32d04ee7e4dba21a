"""Programs that try to get out of the sandbox, as turns of episodes."""

import pytest

from benchmarks.reliability.escapes import ESCAPES
from benchmarks.reliability.escapes.attempts import surroundings
from benchmarks.reliability.escapes.case import Escape
from benchmarks.reliability.escapes.episodes import attempts

pytestmark = pytest.mark.usefixtures("sandboxed")

QUICK = {"read a file of the user", "end the keeper", "become root", "have capabilities"}


def not_contained(escapes):
    with surroundings() as around:
        return [
            (each.escape.name, each.achieved) for each in attempts(escapes, around) if each.achieved
        ]


def test_some_are_contained_and_one_that_is_not_is_told():
    loud = Escape("say so", "print('ESCAPED', 7)")
    tried = [each for each in ESCAPES if each.name in QUICK]
    assert len(tried) == len(QUICK)
    assert not_contained([*tried, loud]) == [("say so", "ESCAPED 7")]


@pytest.mark.slow  # programs that use up their limits
def test_at_least_sixty_are_contained():
    assert len(ESCAPES) >= 60
    assert not_contained(ESCAPES) == []
