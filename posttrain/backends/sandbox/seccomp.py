"""The system calls that a sandboxed program may not make, as a filter of the kernel.

Namespaces hide what is there, and this closes what they do not divide: VSOCK and other families of
sockets, keys, further namespaces and mounts, the attributes of the first process, memory that
belongs to no process. See seccomp(2); the numbers are of include/uapi/asm-generic/unistd.h and
arch/x86/entry/syscalls/syscall_64.tbl of Linux.
"""

import errno
import platform
import struct
from collections.abc import Mapping
from functools import cache

from posttrain.stage.errors import UserError

# Classic BPF: what an instruction does, and where `struct seccomp_data` has what it looks at.
_LOAD, _EQUAL, _ABOVE, _ANY_BIT, _RETURN = 0x20, 0x15, 0x25, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST, _SECOND = 0, 4, 16, 24
_ALLOW, _KILL, _FAIL = 0x7FFF0000, 0x80000000, 0x00050000

_ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}

REFUSED: Mapping[str, tuple[int, int]] = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "unshare": (272, 97),
    "setns": (308, 268),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "fanotify_init": (300, 262),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
    "setpriority": (141, 140),
    "personality": (135, 92),
    "syslog": (103, 116),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "quotactl": (179, 60),
    "acct": (163, 89),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
}
"""Calls that fail with EPERM, by their numbers on x86_64 and on aarch64."""

OF_ITSELF: Mapping[str, tuple[int, int]] = {
    "prlimit64": (302, 261),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
}
"""Calls that a process may make about itself alone, whose first argument is then 0: the first
process of the sandbox has the same user, and keeps the limits."""

# Not there: libraries do without (glibc takes `clone`, whose flags a filter can see).
_ABSENT = {"clone3": (435, 435)}
_LAST_KNOWN = 462
"""Calls that came later are not there either, as nobody has looked at them; nor is x32."""

_CLONE, _SOCKET, _IOCTL = (56, 220), (41, 198), (16, 29)
_NEW_NAMESPACES = 0x7E020000
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET."""
_FAMILIES = (1, 2, 10)
"""AF_UNIX, AF_INET, AF_INET6. The network's namespace divides these; AF_VSOCK reaches a host."""
_TERMINAL_INPUT = (0x5412, 0x541C)
"""TIOCSTI and TIOCLINUX write what a terminal's owner seems to have typed."""


@cache
def system_call_filter(machine: str = "") -> bytes:
    """Assemble the filter.

    Args:
        machine: Processor, as `platform.machine` names it; this machine's where it is empty.

    Returns:
        Instructions of classic BPF, as `bwrap --seccomp` takes them.

    Raises:
        UserError: The numbers of this processor's system calls are not known here.

    """
    machine = machine or platform.machine()
    if machine not in _ARCHITECTURES:
        raise UserError(
            f"the sandbox knows no system calls of the processor {machine}; run what needs it on"
            f" {' or '.join(_ARCHITECTURES)}"
        )
    architecture, column = _ARCHITECTURES[machine]
    return b"".join(
        [
            _do(_LOAD, _ARCHITECTURE),
            _jump(_EQUAL, architecture, yes=1),
            _do(_RETURN, _KILL),
            _do(_LOAD, _NUMBER),
            _jump(_ABOVE, _LAST_KNOWN, no=1),
            _fail(errno.ENOSYS),
            *(_refuse(numbers[column], errno.ENOSYS) for numbers in _ABSENT.values()),
            *(_refuse(numbers[column], errno.EPERM) for numbers in REFUSED.values()),
            *(_only_of_itself(numbers[column]) for numbers in OF_ITSELF.values()),
            _without_namespaces(_CLONE[column]),
            _with_families(_SOCKET[column]),
            _without_injection(_IOCTL[column]),
            _do(_RETURN, _ALLOW),
        ]
    )


def _refuse(number: int, error: int) -> bytes:
    return _jump(_EQUAL, number, no=1) + _fail(error)


def _only_of_itself(number: int) -> bytes:
    return _when(number, _FIRST, _jump(_EQUAL, 0, yes=1) + _fail(errno.EPERM))


def _without_namespaces(number: int) -> bytes:
    return _when(number, _FIRST, _jump(_ANY_BIT, _NEW_NAMESPACES, no=1) + _fail(errno.EPERM))


def _with_families(number: int) -> bytes:
    known = [_jump(_EQUAL, each, yes=len(_FAMILIES) - i) for i, each in enumerate(_FAMILIES)]
    return _when(number, _FIRST, b"".join(known) + _fail(errno.EAFNOSUPPORT))


def _without_injection(number: int) -> bytes:
    checks = [_jump(_EQUAL, each, no=1) + _fail(errno.EPERM) for each in _TERMINAL_INPUT]
    return _when(number, _SECOND, b"".join(checks))


def _when(number: int, argument: int, checks: bytes) -> bytes:
    """Look at an argument of one call: its low half, which all that is compared here lies in."""
    body = _do(_LOAD, argument) + checks + _do(_LOAD, _NUMBER)
    return _jump(_EQUAL, number, no=len(body) // 8) + body


def _fail(error: int) -> bytes:
    return _do(_RETURN, _FAIL | error)


def _do(code: int, value: int) -> bytes:
    return struct.pack("=HBBI", code, 0, 0, value)


def _jump(code: int, value: int, *, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("=HBBI", code, yes, no, value)
