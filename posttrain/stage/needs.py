"""What a stage may need from outside of its process: each named once, with what it opens."""

from collections.abc import Mapping
from dataclasses import dataclass

HUB = "hub"
ENDPOINT = "endpoint"
RAY = "ray"
PROCESSES = "processes"
SANDBOX = "sandbox"
TERMINAL = "terminal"


@dataclass(frozen=True)
class Need:
    """What a stage may do that has declared a need.

    Attributes:
        connects: Talk by TCP.
        leaves: Talk to other machines, by the environment's proxies and certificates.
        several: Be several processes, which talk by sockets among its temporary files.
        by_rows: It may be asked for by a verifier that only tables of problems name.
        answered: What it answers is kept in the project, so that nothing is asked twice.

    """

    connects: bool = True
    leaves: bool = False
    several: bool = False
    by_rows: bool = False
    answered: bool = False


KNOWN_NEEDS: Mapping[str, Need] = {
    HUB: Need(leaves=True),
    ENDPOINT: Need(leaves=True, by_rows=True, answered=True),
    RAY: Need(several=True),
    PROCESSES: Need(several=True),
    SANDBOX: Need(connects=False, by_rows=True),
    TERMINAL: Need(connects=False, answered=True),
}
"""What configs name by `reaches`, and verifiers by `NEEDS`."""

UNCONNECTED = frozenset(name for name, need in KNOWN_NEEDS.items() if not need.connects)
LEAVES = frozenset(name for name, need in KNOWN_NEEDS.items() if need.leaves)
SEVERAL = frozenset(name for name, need in KNOWN_NEEDS.items() if need.several)
ANSWERED = frozenset(name for name, need in KNOWN_NEEDS.items() if need.answered)
BY_ROWS = frozenset(name for name, need in KNOWN_NEEDS.items() if need.by_rows)
