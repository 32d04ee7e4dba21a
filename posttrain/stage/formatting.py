"""Numbers, sizes and durations as people write them: on the terminal, in reports, in graphs."""

import math


def number(value: float) -> str:
    """A figure as people write it: three decimals at most, no trailing zeros."""
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


def bytesize(size: float) -> str:
    """Bytes by the thousand, with one decimal."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{number(round(size, 1))} {unit}"
        size /= 1000
    return f"{number(round(size, 1))} TB"


def duration(seconds: float) -> str:
    """Seconds as people say them."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 2:
        return f"{round(seconds)} s"
    hours, minutes_left = divmod(minutes, 60)
    return f"{hours} h {minutes_left} min" if hours else f"{minutes} min {rest} s"


def shortened(value: str) -> str:
    """The beginning of a digest, by which it is known; any other value as it is.

    >>> shortened("0123456789abcdef" * 4), shortened("0.5")
    ('0123456789ab', '0.5')
    """
    return value[:12] if len(value) == 64 else value
