"""Intervals of shares that came without one."""

import math

Z_95 = 1.959964
"""Of 95%, two-sided."""


def wilson(share: float, count: int) -> tuple[float, float]:
    """Return the ends of Wilson's 95% interval (1927).

    >>> [round(end, 3) for end in wilson(0.5, 100)]
    [0.404, 0.596]

    Args:
        share: Of the draws, those that were so.
        count: Of draws, above 0.

    Returns:
        The lower and the upper end.

    """
    middle = share + Z_95**2 / (2 * count)
    reach = Z_95 * math.sqrt(share * (1 - share) / count + Z_95**2 / (4 * count**2))
    low, high = ((middle + side * reach) / (1 + Z_95**2 / count) for side in (-1, 1))
    return max(0.0, low), min(1.0, high)
