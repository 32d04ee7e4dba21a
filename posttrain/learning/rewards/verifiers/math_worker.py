"""Whether two mathematical expressions are equal, asked of math-verify in a process of its own.

Algebra may take for ever, and math-verify's own time-outs are signals, which only the main thread
of a process hears. Here the main thread is the worker's: an alarm ends it, and whoever asked starts
another one.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from functools import cache
from importlib.util import find_spec
from typing import IO

from posttrain.stage.errors import UserError
from posttrain.stage.extras import extra_line

_MEMORY = 2 << 30
"""Bytes of address space that a worker may take."""
# Literal text: what it imports can be seen, and counts.
_WORKER = """\
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from posttrain.learning.rewards.verifiers.math_worker import answer_questions
answer_questions(sys.stdin, sys.stdout)
"""


class MathWorker:
    """A process that compares expressions, one at a time; it is started when it is first asked."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()

    def compare(self, answer: str, reference: str, *, seconds: float) -> str:
        """Compare two expressions.

        Args:
            answer: LaTeX, or plain.
            reference: What is right.
            seconds: Longest time.

        Returns:
            `equal` or `different`; `not_math` or `not_math_reference` for what is no expression;
            `timed_out` or `stopped` (of memory, say) where it could not be told.

        """
        with self._lock:
            process = self._running()
            assert process.stdin is not None
            assert process.stdout is not None
            question = json.dumps([answer, reference, seconds])
            try:
                process.stdin.write(f"{question}\n")
                process.stdin.flush()
                said = process.stdout.readline().strip()
            except BrokenPipeError:
                said = ""
            if said:
                return said
            self._process = None
            return "timed_out" if process.wait() == -signal.SIGALRM else "stopped"

    def _running(self) -> "subprocess.Popen[str]":
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _WORKER, json.dumps(sys.path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        return self._process


def the_worker() -> MathWorker:
    """Return the worker of this process.

    Raises:
        UserError: math-verify is not installed.

    """
    if find_spec("math_verify") is None:
        raise UserError(
            "the verifier 'math' needs math-verify, which is not installed; run:"
            f" {extra_line('math')}, or take the verifier 'numeric' where answers are numbers"
        )
    return _worker_of(os.getpid())


@cache
def _worker_of(_process: int) -> MathWorker:
    # By process: one that was forked would share its parent's pipes.
    return MathWorker()


def answer_questions(questions: IO[str], answers: IO[str]) -> None:
    """Answer questions, a line each, until there are no more; what a worker does.

    Args:
        questions: Lines of JSON: answer, reference, seconds.
        answers: Where the verdicts go, a line each.

    """
    import resource

    from math_verify import LatexExtractionConfig, parse, verify

    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    latex = [LatexExtractionConfig(boxed_match_priority=0)]

    def read(text: str) -> list[object]:
        # In a box, a plain expression is read as LaTeX too; and never handed to Python's eval.
        found = parse(f"\\boxed{{{text}}}", latex, parsing_timeout=None)
        return [each for each in found if not isinstance(each, str)]

    for line in questions:
        answer, reference, seconds = json.loads(line)
        signal.setitimer(signal.ITIMER_REAL, seconds)
        right, given = read(reference), read(answer)
        if not right:
            said = "not_math_reference"
        elif not given:
            said = "not_math"
        else:
            said = "equal" if verify(right, given, timeout_seconds=None) else "different"
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(said, file=answers, flush=True)
