"""A share that grows by a factor and shrinks by it, over and over."""


def swinging(number: int, *, least: float, most: float, factor: float) -> float:
    """Compute a share of the swing of Cyclical Curriculum Learning, from the smallest one on.

    Source: arXiv 2202.05531; CyclicalCurriculum/Cyclical-Curriculum at 90bfae0, ChangeDatasize.py
    (get_cycle_sizes).

    >>> [swinging(number, least=0.25, most=1.0, factor=0.5) for number in range(6)]
    [0.25, 0.5, 1.0, 0.5, 0.25, 0.5]

    Args:
        number: Of the share, from 0.
        least: The smallest.
        most: The largest.
        factor: What a shrinking share is of the one before; a growing one is that many times more.

    Returns:
        A number from `least` to `most`, which are both met in every swing.

    """
    cycle, share = [], least
    while share < most:
        cycle.append(share)
        share *= 1 / factor
    cycle.append(most)
    share = most * factor
    while share > least:
        cycle.append(share)
        share *= factor
    return cycle[number % len(cycle)]
