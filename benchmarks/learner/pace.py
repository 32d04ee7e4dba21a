"""Bursts of steps on demand: the parent says when, so that two processes take turns.

Only the standard library: the peer's environment has no `posttrain`.
"""

import json
import os
import sys
import time
from typing import Any


class Pace:
    """Counts steps; after `warm_up` of them, runs `burst` at a time whenever a line comes in.

    One JSON line goes out when the warm-up is done, with the facts that the parent checks, and one
    after every burst with its seconds. The end of the input ends the process.
    """

    def __init__(self, *, warm_up: int, burst: int) -> None:
        self.warm_up, self.burst = warm_up, burst
        self.facts: dict[str, Any] = {}
        self._steps = 0
        self._started = 0.0
        # What a library prints must not be taken for an answer.
        self._answers = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)

    def step(self) -> None:
        """Call at the end of every step."""
        now = time.perf_counter()
        self._steps += 1
        after = self._steps - self.warm_up
        if after < 0 or after % self.burst:
            return
        answer = {"facts": self.facts} if after == 0 else {"seconds": now - self._started}
        print(json.dumps(answer), file=self._answers, flush=True)
        if not sys.stdin.readline():
            os._exit(0)
        self._started = time.perf_counter()
