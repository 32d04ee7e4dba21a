"""Programs that write worked solutions, and that err as often as they are told to.

A solution is one line per step and a last line `#### answer`. A wrong step is off by up to three,
and everything after it builds on the wrong value, as it would for a model.
"""

from collections.abc import Callable, Mapping

from tasks.synthesize.teachers.arithmetic import solve_expression
from tasks.synthesize.teachers.legs import solve_legs
from tasks.synthesize.teachers.notes import Metadata, Notes
from tasks.synthesize.teachers.sorting import solve_sorting

__all__ = ["TEACHERS", "Metadata", "Notes"]

# Generator -> a function that works one problem out in `notes` and returns the answer.
TEACHERS: Mapping[str, Callable[[Metadata, Notes], str]] = {
    "chain_sum": solve_expression,
    "basic_arithmetic": solve_expression,
    "leg_counting": solve_legs,
    "number_sorting": solve_sorting,
}
