"""Legs of a list of animals: each kind's legs, then their running sum."""

from posttrain.data.teachers.notes import Metadata, Notes


def solve_legs(metadata: Metadata, notes: Notes) -> str:
    """Multiply, then add, one line each."""
    from reasoning_gym.arithmetic.leg_counting import ANIMALS

    total: int | None = None
    for animal, count in metadata["animals"].items():
        legs = notes.value(count * ANIMALS[animal])
        notes.lines.append(f"{count} {animal} = {legs}")
        total = legs if total is None else notes.calculate(total, "+", legs)
    return str(total)
