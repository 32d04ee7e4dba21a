"""What another system than Linux lacks, and what is refused there."""

import os

from posttrain.stage.errors import UserError


def cores() -> int:
    """Cores that this process may use; where the system does not say (macOS), that there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def refuse_other_systems(what: str, system: str) -> None:
    """Refuse what is made of Linux's own calls; whatever only reads goes on elsewhere.

    Args:
        what: What is asked for, as a clause.
        system: What `platform.system` calls this one.

    Raises:
        UserError: It is not Linux.

    """
    if system != "Linux":
        raise UserError(
            f"{what} on Linux only, and this is {system}: do it there, in a container or in a"
            " virtual machine; `posttrain pull` then fetches what was made, and what looks at it"
            " (plan, status, lineage, rows, diff, ui) works here"
        )
