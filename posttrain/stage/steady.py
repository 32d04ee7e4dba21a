"""Configs that no loop over steps resolves: a schedule in one would never be asked for a number."""

from typing import Any

from posttrain.stage.schedule import schedules_in


def refuse_schedules(value: Any, path: str) -> None:
    """Refuse schedules where there are no steps to go by.

    Args:
        value: Of a config that no loop resolves.
        path: Dotted path of it.

    Raises:
        ValueError: It holds a schedule.

    """
    for where, _ in schedules_in(value, path):
        raise ValueError(f"{where} is a schedule, and there are no steps here; write a number")
