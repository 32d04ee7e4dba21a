"""Imported first by the fork server, before its heavy imports: how it ends, and how it does not.

A signal to every process of the command, such as a terminal's Ctrl-C, leaves it and what it forks
alone: the command decides what it means. It ends with the command, also in the midst of an import.
"""

import ctypes
import os
import signal

from posttrain.stage.interrupts import COMMAND, leave_to_parent

_PR_SET_PDEATHSIG = 1

# Elsewhere than in the fork server its import does nothing.
_command = os.environ.pop(COMMAND, None)
if _command is not None:
    leave_to_parent()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if _command != str(os.getppid()):
        os._exit(0)  # it has ended already
