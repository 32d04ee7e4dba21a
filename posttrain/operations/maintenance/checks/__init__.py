"""What can be wrong with a machine or a project: each check says how it is and what to do."""

from collections.abc import Callable, Iterator, Mapping

from posttrain.operations.maintenance.checks import (
    artifacts,
    clock,
    gpu,
    installation,
    ledger,
    leftovers,
    machine,
    objects,
    servers,
)
from posttrain.operations.maintenance.checks.finding import CheckScope, Finding
from posttrain.stage.errors import UserError

Check = Callable[[CheckScope], Iterator[Finding]]

# Of any machine, and of a project only; in the order in which they are shown.
ANYWHERE: Mapping[str, Check] = {
    "python": installation.python,
    "packages": installation.packages,
    "path": installation.commands,
    "extras": installation.extras,
    "gpu": gpu.gpu,
    "stages": machine.stages,
}
IN_PROJECT: Mapping[str, Check] = {
    "versions": installation.versions,
    "programs": machine.programs,
    "git": machine.git,
    "disk": machine.disk,
    "ledger": ledger.ledger,
    "clock": clock.clock,
    "cache": objects.cache,
    "artifacts": artifacts.artifacts,
    "leftovers": leftovers.leftovers,
    "databases": servers.databases,
    "servers": servers.servers,
}


def examine(place: CheckScope) -> Iterator[Finding]:
    """Every finding, in order, as soon as it is known."""
    checks = {**ANYWHERE, **IN_PROJECT} if place.root is not None else ANYWHERE
    for name, check in checks.items():
        try:
            yield from check(place)
        except UserError as error:
            yield Finding(name, "broken", str(error), "see there; then posttrain doctor again")
        except OSError as error:
            says = f"cannot look: {error.strerror or error}: {error.filename}"
            yield Finding(name, "broken", says, "make it readable for this user")
