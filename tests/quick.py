"""Which cases of a table that each run a project are among the quick tests."""

from collections.abc import Iterable
from typing import Any

import pytest


def first_now(cases: Iterable[Any]) -> list[Any]:
    """Parametrize by all cases: the first is a quick test, the others are long ones."""
    first, *others = cases
    return [first, *(pytest.param(case, marks=pytest.mark.slow) for case in others)]
