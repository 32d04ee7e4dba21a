"""Bursts of steps on demand: the parent says when, so that two processes take turns.

Only the standard library: the peer's environment has no `posttrain`.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any


class Pace:
    """Counts steps; after `warm_up` of them, runs `burst` at a time whenever a line comes in.

    One JSON line goes out when the warm-up is done, with the facts that the parent checks, and one
    after every burst with its seconds, by the clock and of the processor. The end of the input ends
    the process. `keep` is called before every answer, while the clock stands.
    """

    def __init__(
        self, *, warm_up: int, burst: int, keep: Callable[[], object] | None = None
    ) -> None:
        self.warm_up, self.burst, self.keep = warm_up, burst, keep
        self.facts: dict[str, Any] = {}
        self._steps = 0
        self._started = self._busy = 0.0
        # What a library prints must not be taken for an answer.
        self._answers = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)

    def step(self) -> None:
        """Call at the end of every step."""
        now, busy = time.perf_counter(), time.process_time()
        self._steps += 1
        after = self._steps - self.warm_up
        if after < 0 or after % self.burst:
            return
        answer: dict[str, Any] = {"facts": self.facts}
        if after:
            answer = {"seconds": now - self._started, "processor": busy - self._busy}
        if self.keep:
            self.keep()
        print(json.dumps(answer), file=self._answers, flush=True)
        if not sys.stdin.readline():
            os._exit(0)
        self._started, self._busy = time.perf_counter(), time.process_time()
