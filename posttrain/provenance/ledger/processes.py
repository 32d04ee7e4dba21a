"""Tell whether the process that began a run still lives, across restarts and reused ids."""

import os
import socket
from pathlib import Path


def this_process() -> str:
    """`host pid birth` of the calling process."""
    return process_named(os.getpid())


def process_named(pid: int) -> str:
    """`host pid birth` of a process on this host."""
    return f"{socket.gethostname()} {pid} {_birth(pid)}"


def is_gone(process: str) -> bool:
    """True when `process` ran on this host and is no longer there; unknown counts as alive."""
    host, pid, birth = process.split(" ")
    return host == socket.gethostname() and _birth(int(pid)) != birth


def is_ours(process: str) -> bool:
    """Return whether this kernel has `process` now: only then may it be signalled.

    Linux names the boot and the tick at which it began, which no other process has, whatever the
    host is called by now. Elsewhere the host's name must do.

    Args:
        process: `host pid birth`, as `process_named` writes it.

    """
    host, pid, birth = process.split(" ")
    named = ":" in birth or (birth == "alive" and host == socket.gethostname())
    return named and _birth(int(pid)) == birth


def _birth(pid: int) -> str:
    """Boot id and start tick where Linux tells them, else whether the process exists at all.

    psutil's `create_time` follows the clock: where that is set, every process would be another.
    """
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except FileNotFoundError:
        import psutil

        return "alive" if psutil.pid_exists(pid) else "gone"
    # The command name is in parentheses and may hold spaces; what follows it is regular.
    state, *fields = status.rpartition(")")[2].split()
    return "gone" if state == "Z" else f"{boot}:{fields[18]}"
