"""Numbers, sizes and durations as people write them: on the terminal, in reports, in graphs."""

import math


def number(value: float) -> str:
    """Write a figure with three decimals at most and no trailing zeros.

    Args:
        value: The figure.

    Returns:
        Its text; `n/a` where it is not finite.

    """
    if not math.isfinite(value):
        return "n/a"
    size = abs(value)
    if size < 1e12 and value == int(value):
        return f"{value:,.0f}"
    if size >= 100_000 or size < 0.001:
        mantissa, _, exponent = f"{value:.2e}".partition("e")
        return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"
    text = f"{value:,.{0 if size >= 1000 else 1 if size >= 100 else 3}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def counted(count: int, noun: str) -> str:
    """Write a number with its noun, in the plural where it must be.

    >>> counted(1, "row"), counted(1200, "row")
    ('1 row', '1,200 rows')

    Args:
        count: How many.
        noun: Of one.

    Returns:
        Both.

    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def bytesize(size: float) -> str:
    """Write a size by the thousand, with one decimal.

    Args:
        size: In bytes.

    Returns:
        Its text, such as `1.5 MB`.

    """
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{number(round(size, 1))} {unit}"
        size /= 1000
    return f"{number(round(size, 1))} TB"


def duration(seconds: float) -> str:
    """Write a duration as people say it.

    Args:
        seconds: How long.

    Returns:
        Its text, such as `2 min 5 s`.

    """
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 2:
        return f"{round(seconds)} s"
    hours, minutes_left = divmod(minutes, 60)
    return f"{hours} h {minutes_left} min" if hours else f"{minutes} min {rest} s"


def shortened(value: str) -> str:
    """Cut a digest to the beginning by which it is known.

    >>> shortened("0123456789abcdef" * 4), shortened("0.5")
    ('0123456789ab', '0.5')

    Args:
        value: A digest, or any other value.

    Returns:
        The first letters of the digest; any other value as it is.

    """
    return value[:12] if len(value) == 64 else value
