"""Sources of problems at graded difficulty: a level is a value that some settings take."""

from collections.abc import Sequence


def refuse_half_graded(
    name: str, levels: Sequence[int], graded: Sequence[str], *, what: str
) -> None:
    """Refuse levels that grade nothing, and what is graded without levels.

    Args:
        name: Of the source.
        levels: Values, easy to hard.
        graded: What takes them.
        what: What these are called, such as `options`.

    Raises:
        ValueError: One of the two is given alone.

    """
    if bool(levels) != bool(graded):
        raise ValueError(
            f"'{name}' needs both levels and graded, the {what} that take a level's value, or"
            " neither"
        )


def even_shares(number: int, levels: int) -> list[int]:
    """Share problems out over levels.

    >>> even_shares(8, 3)
    [2, 3, 3]

    Args:
        number: Of problems.
        levels: At least one.

    Returns:
        Problems of each level; they differ by one at most.

    """
    ends = [number * place // levels for place in range(levels + 1)]
    return [end - begin for begin, end in zip(ends, ends[1:], strict=False)]
