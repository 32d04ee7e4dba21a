"""When to ask again."""

import random
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
"""Statuses that may pass by themselves."""

FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 60.0


def wait_seconds(attempt: int, headers: Mapping[str, str], *, now: datetime | None = None) -> float:
    """Seconds to wait after the 0-based `attempt` failed.

    What the server asks for in Retry-After, in seconds or as a date, and never less than the
    back-off: half to all of 0.5 * 2^attempt, drawn anew so that clients do not come back together
    (Brooker, "Exponential backoff and jitter", 2015). At most a minute.
    """
    ceiling = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2**attempt)
    backoff: float = ceiling * random.uniform(0.5, 1.0)
    asked = _retry_after(headers.get("retry-after", ""), now or datetime.now(UTC))
    return min(LONGEST_WAIT_S, max(backoff, asked))


def _retry_after(value: str, now: datetime) -> float:
    """Seconds until the time that the header names; 0 where it names none."""
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return 0.0
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - now).total_seconds())
