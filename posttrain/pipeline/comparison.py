"""What really differs between a record of an older version and today, its rules of keys apart."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from posttrain.pipeline.determinism import stage_seed
from posttrain.pipeline.moved import MOVED
from posttrain.pipeline.recipe_formats import parse_recorded
from posttrain.provenance.code import CodeClosure, CodeReader, Renaming
from posttrain.provenance.key import Components, Difference, differences, flattened, nested
from posttrain.stage.errors import UserError
from posttrain.stage.spec import Stage

_NAMES = Renaming(MOVED)
_SHOWN = 4
_SETTING_UP = (
    "posttrain.pipeline.determinism",
    "posttrain.pipeline.execution.call",
    # Their names of 0.1.
    "posttrain.execution.determinism",
    "posttrain.execution.call",
)


def same_rules(before: Components, after: Components) -> bool:
    """True where two keys were made by the same rules, so that they compare as they are."""
    return before.get("rules") == after.get("rules")


def real_differences(
    before: Components, after: Components, *, stage: Stage, closure: CodeClosure, reader: CodeReader
) -> list[Difference]:
    """Compare a record of an older version with today's key, in the terms of then.

    Today's code is spelled with the names that modules had: equal digests mean that only names
    differ. Parameters of then are read as a recipe of then is. A package of an extra that nothing
    asks for counts no more. What older rules did not know is not compared (`never_recorded`): the
    packages behind packages, and how a stage's function is called.

    Args:
        before: The key's components as recorded.
        after: Today's, given the same stage.
        stage: The stage as the recipe has it now.
        closure: Its code now.
        reader: What the code was read by.

    Returns:
        What differs all the same, with modules by their names of today; empty where the recorded
        result is what this version would make, too.

    """
    packages = before.get("packages", {})
    moved = "rules" not in before
    code = reader.respelled(closure, _NAMES) if moved else after["code"]
    found = differences(
        {
            **{name: group for name, group in before.items() if name != "rules"},
            "params": _params_of_today(before.get("params", {}), stage),
            "packages": {n: version for n, version in packages.items() if n not in closure.unused},
            "runtime": _runtime_of_today(before.get("runtime", {}), stage),
        },
        {
            **{name: group for name, group in after.items() if name != "rules"},
            "code": {n: each for n, each in code.items() if n in before["code"] or _counted(n)},
            "packages": {
                name: version
                for name, version in after["packages"].items()
                if name in packages or name in closure.packages
            },
        },
    )
    return [
        _by_its_name_of_today(each) if moved and each.component == "code" else each
        for each in found
    ]


def never_recorded(before: Components, after: Components, closure: CodeClosure) -> str:
    """Say what of today's key cannot be compared, as older rules recorded nothing of it.

    Args:
        before: The key's components as recorded.
        after: Today's.
        closure: The stage's code now.

    Returns:
        A sentence; empty where everything was compared.

    """
    behind = after["packages"].keys() - before.get("packages", {}).keys() - closure.packages
    known = {_by_its_name_of_today(Difference("code", n, "", "")).name for n in before["code"]}
    new = after["code"].keys() - known
    set_up = {name.partition(":")[0] for name in new if not _counted(name)}
    parts = []
    if behind:
        parts.append(f"the versions of {len(behind)} packages behind packages ({_few(behind)})")
    if set_up:
        parts.append(f"code that sets a stage up ({_few(set_up)})")
    return f"not compared, as it was never recorded: {'; '.join(parts)}" if parts else ""


def _few(names: Collection[str]) -> str:
    first = sorted(names)[:_SHOWN]
    return ", ".join([*first, *(["..."] if len(names) > _SHOWN else [])])


def _counted(symbol: str) -> bool:
    """Whether older rules knew of it; how a stage is set up was in no key but for its seeds."""
    return symbol.partition(":")[0] not in _SETTING_UP


def _runtime_of_today(runtime: Mapping[str, str], stage: Stage) -> Mapping[str, str]:
    """The seed by value, and no level of reproducibility, which changes no byte."""
    known = {name: value for name, value in runtime.items() if name != "level"}
    return known | ({"stage_seed": str(stage_seed(runtime, stage.name))} if runtime else {})


def _params_of_today(params: Mapping[str, str], stage: Stage) -> Mapping[str, str]:
    """Parameters as recorded, in today's spelling and with today's new fields at their defaults."""
    section: dict[str, Any] = nested(params)
    try:
        config = parse_recorded(stage.task, section, where=stage.name)
    except UserError:
        return params
    return flattened(config.keyed())


def _by_its_name_of_today(difference: Difference) -> Difference:
    module, _, name = difference.name.partition(":")
    return replace(difference, name=f"{_NAMES.current(module)}:{name}")
