"""Sorting numbers: the smallest (or largest) of what is left, again and again."""

from posttrain.data.teachers.notes import Metadata, Notes


def solve_sorting(metadata: Metadata, notes: Notes) -> str:
    """Write the sorted list; a slip picks any number that is left."""
    left = [int(float(number)) for number in metadata["original_numbers"]]
    best = min if metadata["direction"] == "ascending" else max
    picked = []
    while left:
        number = notes.choice(best(left), left)
        left.remove(number)
        picked.append(number)
    return f"[{', '.join(map(str, picked))}]"
