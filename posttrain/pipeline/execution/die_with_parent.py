"""Become a program that ends with its parent: `die_with_parent.py PARENT PROGRAM [ARGUMENT ...]`.

Where Linux offers it, a supervisor that is killed leaves nobody behind. Stands alone: it is run as
a script, by an interpreter that looks at nothing else.
"""

import contextlib
import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(parent: int, program: str, *arguments: str) -> None:
    """Ask the kernel for a signal at the parent's end, then give the process to the program."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        sys.exit(f"the process that started {program} is gone")
    os.execvp(program, (program, *arguments))


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
