"""Landlock: a process gives up, for itself and all that it starts, what it need not reach.

See landlock(7). What is given up cannot be taken back. Files that are open
already stay open, and names can be asked for (stat) wherever they lie.
"""

import ctypes
import os
import struct
from collections.abc import Iterable
from functools import cache
from pathlib import Path

# System calls by their numbers on every architecture, include/uapi/asm-generic/unistd.h.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_ASK_FOR_VERSION = 1
_PATH_BENEATH = 1
_NO_NEW_PRIVILEGES = 38  # of prctl(2)

# Rights to files, include/uapi/linux/landlock.h. Who may not read a program cannot start it, and
# what a device is asked to do beside reads and writes is left to the device.
WRITE_FILE, READ_FILE, READ_DIR = 1 << 1, 1 << 2, 1 << 3
_REMOVE_AND_MAKE = sum(1 << bit for bit in range(4, 13))
_REFER, _TRUNCATE = 1 << 13, 1 << 14
READ = READ_FILE | READ_DIR
_OF_FILES = READ_FILE | WRITE_FILE | _TRUNCATE

_REFER_SINCE, _TRUNCATE_SINCE, TCP_SINCE, _SCOPES_SINCE = 2, 3, 4, 6
SINCE = "files are held since Linux 5.13, TCP since 6.7"
_BIND_AND_CONNECT = 0b11
_SCOPES = 0b11
"""Sockets without a file, and signals: only those of this process and of what it starts."""


@cache
def abi() -> int:
    """Ask for the version of this kernel's Landlock; 0 where there is none."""
    return max(0, int(_libc().syscall(_CREATE_RULESET, None, 0, _ASK_FOR_VERSION)))


def writing() -> int:
    """All rights by which something can be changed that this kernel knows."""
    known = WRITE_FILE | _REMOVE_AND_MAKE
    known |= _REFER if abi() >= _REFER_SINCE else 0
    return known | (_TRUNCATE if abi() >= _TRUNCATE_SINCE else 0)


def restrict(rules: Iterable[tuple[str | Path, int]], *, tcp: bool) -> None:
    """Give up everything but some places, for good.

    Args:
        rules: Paths, each with the rights to it and to all below it; one that is not there is
            passed over. A link stands for what it leads to.
        tcp: May connect by TCP, and listen; what kernels before Linux 6.7 cannot refuse.

    Raises:
        OSError: The kernel has no Landlock, or refuses.

    """
    held_tcp = 0 if tcp or abi() < TCP_SINCE else _BIND_AND_CONNECT
    handled = (READ | writing(), held_tcp, _SCOPES)
    fields = 3 if abi() >= _SCOPES_SINCE else 2 if abi() >= TCP_SINCE else 1
    attributes = struct.pack(f"={fields}Q", *handled[:fields])
    ruleset = _call(_CREATE_RULESET, attributes, len(attributes), 0)
    try:
        for path, rights in rules:
            _allow(ruleset, path, rights & handled[0])
        if _libc().prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "prctl refused PR_SET_NO_NEW_PRIVS")
        _call(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str | Path, rights: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return
    try:
        if not os.path.isdir(place):  # noqa: PTH112 - of the open file, not of its name
            rights &= _OF_FILES
        if rights:
            _call(_ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", rights, place), 0)
    finally:
        os.close(place)


def _call(number: int, *arguments: object) -> int:
    done = int(_libc().syscall(number, *arguments))
    if done < 0:
        raise OSError(ctypes.get_errno(), f"Landlock: {os.strerror(ctypes.get_errno())}")
    return done


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
