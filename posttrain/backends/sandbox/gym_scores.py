"""Score answers by reasoning-gym's own scorers, each in a process: this file runs in a sandbox."""

import json
import os
import select
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Any

TOO_LATE, BROKEN = "timeout", "error"
"""What stands in place of a score."""


def score_each(
    answers: list[tuple[str, str, Mapping[str, Any]]], seconds: float
) -> list[float | str]:
    """Score answers one after the other.

    Args:
        answers: Generator, answer, and the entry of the data set.
        seconds: Most that one may take.

    Returns:
        A score, or why there is none.

    """
    from reasoning_gym.factory import get_score_answer_fn

    return [
        _apart(get_score_answer_fn(generator), answer, entry, seconds)
        for generator, answer, entry in answers
    ]


def _apart(
    scorer: Callable[[str, Mapping[str, Any]], float],
    answer: str,
    entry: Mapping[str, Any],
    seconds: float,
) -> float | str:
    """Score in a process of its own: the next answer finds nothing that this one left."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, json.dumps(float(scorer(answer, entry))).encode())
        finally:
            os._exit(0)
    os.close(writing)
    ready, _, _ = select.select([reading], [], [], seconds)
    told = os.read(reading, 100) if ready else b""
    os.close(reading)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    if not ready:
        return TOO_LATE
    return float(told) if told else BROKEN


if __name__ == "__main__":
    order = json.load(sys.stdin)
    json.dump(score_each(order["answers"], order["seconds"]), sys.stdout)
