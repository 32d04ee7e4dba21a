"""The plug-ins behind a release: which parts its stages used that do not ship with posttrain."""

from collections.abc import Iterable
from typing import Any

from posttrain.pipeline.slots import parts_in_code
from posttrain.provenance.code.distributions import distributions
from posttrain.provenance.ledger import StageRun
from posttrain.stage.hashing import sha256_of_json
from posttrain.stage.installed import SHARED


def used_plugins(runs: Iterable[StageRun]) -> list[dict[str, Any]]:
    """List the parts of plug-ins that stages ran with.

    Args:
        runs: The stages of a release's chain.

    Returns:
        One entry per part, by slot and kind: its class, the stages that used it, the digest of all
        code of its package that these reached, and the version of its distribution, if it has one.

    """
    found: dict[tuple[str, str], dict[str, Any]] = {}
    code: dict[tuple[str, str], dict[str, str]] = {}
    for run in runs:
        symbols = run.components["code"]
        for slot, parts in parts_in_code(symbols).items():
            for kind, part in parts.items():
                package = _package(part.__module__)
                entry = found.setdefault(
                    (slot, kind),
                    {
                        "slot": slot,
                        "kind": kind,
                        "class": f"{part.__module__}:{part.__name__}",
                        "stages": [],
                        "packages": {
                            name: run.components["packages"][name]
                            for name in sorted(distributions([package.partition(".")[0]]))
                            if name in run.components["packages"]
                        },
                    },
                )
                entry["stages"].append(run.stage)
                code.setdefault((slot, kind), {}).update(
                    {name: value for name, value in symbols.items() if _package(name) == package}
                )
    return [{**found[key], "sha256": sha256_of_json(code[key])} for key in sorted(found)]


def _package(symbol: str) -> str:
    names = symbol.partition(":")[0].split(".")
    # Beneath `tasks` and `flows` a project's own packages stand beside those that ship.
    return ".".join(names[: 2 if names[0] in SHARED else 1])
