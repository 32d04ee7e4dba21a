"""A recipe's file: its YAML, the overrides of the command line, and the form of its sections."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from posttrain.stage.declared import Declared
from posttrain.stage.errors import UserError, first_line, nearest

DECLARED = tuple(Declared.model_fields)
NO_STAGES = (
    "cost", "run", "flow", "format", "method", "notify", "plugins", "profile", "release", "rounds",
    "schedules",
    *DECLARED,
)  # fmt: skip
"""Names of a recipe that no stage may have."""

_DEEPEST = 50
_TOO_DEEP = "mappings lie too deep in each other, or an anchor in itself; write it flatter"
_NAMED_BY = {"algorithm": "preset"}
"""Sections that may be written as one name, by the field that the name is the value of."""
_STAGE_NAME = re.compile(r"[A-Za-z][\w-]*")


def read_yaml(file: Path) -> dict[str, Any]:
    """Read a recipe's file.

    Args:
        file: A YAML file.

    Returns:
        Its top level.

    Raises:
        UserError: It is not there, is no YAML, or holds no mapping.

    """
    if not file.is_file():
        raise UserError(
            f"there is no recipe at {file}; name a recipe file or a folder that has one"
        )
    try:
        values = YAML(typ="safe").load(file.read_text(encoding="utf-8"))
    except MarkedYAMLError as error:
        # An open bracket is noticed at the end of the file, but it is where it was opened.
        opened = error.context_mark if "flow" in (error.context or "") else None
        mark = opened or error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else "?"
        raise UserError(f"{file}:{line}: not valid YAML: {error.problem}") from None
    except (YAMLError, UnicodeDecodeError, OSError) as error:
        raise UserError(f"{file}: not a text file: {first_line(error)}") from None
    except RecursionError:
        raise UserError(f"{file}: {_TOO_DEEP}") from None
    if _depth_beyond(values, _DEEPEST):
        raise UserError(f"{file}: {_TOO_DEEP}")
    if not isinstance(values, dict):
        raise UserError(f"{file}: a recipe is a mapping of sections, starting with 'flow:'")
    if wrong := [name for name in values if not isinstance(name, str)]:
        raise UserError(f"{file}: the name of a section must be text, got {wrong[0]!r}")
    return values


def _depth_beyond(value: object, left: int) -> bool:
    """Whether mappings and lists lie in each other deeper than that; an anchor in itself does."""
    if not isinstance(value, Mapping | list):
        return False
    inside = value.values() if isinstance(value, Mapping) else value
    return left == 0 or any(_depth_beyond(each, left - 1) for each in inside)


def read_rounds(file: Path, value: object) -> int | None:
    """Read a recipe's `rounds`.

    Args:
        file: The recipe, for errors.
        value: What stands there, or None.

    Returns:
        How many rounds there are; None where that is left to the flow.

    Raises:
        UserError: It is no number of rounds.

    """
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise UserError(f"{file}: rounds: must be a whole number of at least 1, got {value!r}")
    return value


def read_plugins(file: Path, value: object) -> tuple[str, ...]:
    """Read a recipe's `plugins`.

    Args:
        file: The recipe, for errors.
        value: One module, several, or None.

    Returns:
        The names of the modules.

    Raises:
        UserError: One is no name of a module.

    """
    if value is None:
        return ()
    names = value if isinstance(value, list) else [value]
    for name in names:
        if not isinstance(name, str) or not all(part.isidentifier() for part in name.split(".")):
            raise UserError(f"{file}: plugins: {name!r} is no module; write it as mine.rewards")
    return tuple(names)


def unfold_lists(file: Path, values: Mapping[str, Any]) -> dict[str, Any]:
    """Write a list of sections as one section for each stage.

    >>> unfold_lists(Path(), {"probe": [{}, {"as": "probe_late", "num_samples": 8}]})
    {'probe': {}, 'probe_late': {'repeats': 'probe', 'num_samples': 8}}

    Args:
        file: The recipe, for errors.
        values: Its top level; the first section of a list is the flow's own stage, and each other
            one is named by its `as`.

    Returns:
        The top level without lists in the place of sections.

    Raises:
        UserError: A list holds nothing, or something that is no section, or has no name of its own.

    """
    unfolded: dict[str, Any] = {}
    for name, value in values.items():
        several = value if isinstance(value, list) and name not in NO_STAGES else [value]
        if not several:
            raise UserError(f"{file}: '{name}' is a list of no stages; leave it out")
        for place, each in enumerate(several, start=1):
            own, section = name, each
            if several is value:
                own, section = _entry_of(
                    file, f"{name}, entry {place}", name, each, first=place == 1
                )
            if own in unfolded or (own != name and own in values):
                raise UserError(f"{file}: two stages are called '{own}'; rename one")
            unfolded[own] = section
    return unfolded


def _entry_of(
    file: Path, where: str, kind: str, given: object, *, first: bool
) -> tuple[str, dict[str, Any]]:
    """The name and the section of one entry of a list."""
    section = dict(section_of(file, where, given))
    name = section.pop("as", kind if first else None)
    if first and name != kind:
        raise UserError(f"{file}: {where}: the first is the flow's own '{kind}'; leave `as` out")
    if not first:
        if name is None:
            raise UserError(f"{file}: {where}: name the stage, such as by as: {kind}_again")
        section = {"repeats": kind, **section}
    if not isinstance(name, str) or not is_stage_name(name):
        raise UserError(f"{file}: {where}: {name!r} is no name of a stage; take letters and _")
    return name, section


def is_stage_name(name: str) -> bool:
    """Whether a stage may be called so: a folder of its outputs is, and a section of the recipe."""
    return bool(_STAGE_NAME.fullmatch(name)) and name not in NO_STAGES


def section_of(file: Path, name: str, value: object) -> dict[str, Any]:
    """Read one section, in which nothing may stand.

    Args:
        file: The recipe, for errors.
        name: The section's, for errors.
        value: What stands there.

    Returns:
        Its parameters.

    Raises:
        UserError: It is no mapping.

    """
    if value is None:
        return {}
    if not isinstance(value, dict):
        hint = "" if name in NO_STAGES else nearest(name, NO_STAGES)
        raise UserError(
            f"{file}: section '{name}' must be a mapping of parameters, got {value!r}{hint}"
        )
    return value


def parse_override(text: str) -> tuple[str, Any]:
    """Read one `section.parameter=value` of the command line.

    Args:
        text: As given; the value is YAML.

    Returns:
        The dotted path and the value.

    Raises:
        UserError: It is not of that form.

    """
    key, equals, value = text.partition("=")
    if not equals or not re.fullmatch(r"[\w-]+(\.[\w-]+)*", key):
        raise UserError(f"--set takes section.parameter=value, got '{text}'")
    if not value.strip():
        raise UserError(f"--set {key}: there is no value behind the =; write null for none")
    try:
        read = YAML(typ="safe").load(value)
    except (YAMLError, ValueError, RecursionError):
        raise UserError(f"--set {key}: not a YAML value: '{value}'") from None
    if _depth_beyond(read, _DEEPEST):
        raise UserError(f"--set {key}: {_TOO_DEEP}")
    return key, read


def apply_override(values: dict[str, Any], dotted: str, value: object) -> None:
    """Set what an override names, in place.

    Args:
        values: A recipe as read.
        dotted: Path such as `sft.steps`.
        value: What it is from now on.

    Raises:
        UserError: The path leads through something that is no section.

    """
    *parents, last = dotted.split(".")
    place = values
    for parent in parents:
        inner = place.get(parent)
        if inner is None:
            inner = place[parent] = {}
        if isinstance(inner, str) and parent in _NAMED_BY:
            inner = place[parent] = {_NAMED_BY[parent]: inner}
        if not isinstance(inner, dict):
            raise UserError(
                f"--set {dotted}: '{parent}' is the value {inner!r}, not a section; where that"
                f" names a kind, set the whole: {parent}: {{kind: {inner}, ...}}"
            )
        place = inner
    place[last] = value
