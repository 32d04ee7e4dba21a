"""Which cases of a table that each run a project are among the quick tests."""

from collections.abc import Iterable
from typing import Any

import pytest


def first_now(cases: Iterable[Any]) -> list[Any]:
    """Parametrize by all cases: the first is a quick test, the others are long ones."""
    first, *others = cases
    return [first, *(pytest.param(case, marks=pytest.mark.slow) for case in others)]


def one_now_in(number: int, cases: Iterable[Any]) -> list[Any]:
    """Parametrize by all cases: the first of each `number` is a quick test, the others are long."""
    return [
        pytest.param(case, marks=pytest.mark.slow if place % number else ())
        for place, case in enumerate(cases)
    ]
