"""What can be installed beside the core, what it is for, and whether this project needs it."""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Literal, NamedTuple

from posttrain.operations.maintenance.checks.finding import CheckScope, Finding
from posttrain.operations.maintenance.checks.installation import (
    install_line,
    required,
    unmet,
)
from posttrain.operations.project.versions import installed_version
from posttrain.provenance.ledger.location import ledger_location


class Extra(NamedTuple):
    """One extra: its use in few words, and what in a project asks for it."""

    use: str
    asked: Callable[[CheckScope], str]
    # A recipe may be for another machine; what the project's own settings ask for is for all.
    missed: Literal["warning", "broken"]


def extras(place: CheckScope) -> Iterator[Finding]:
    """Every extra: there, or not, with the line that installs it."""
    there: list[str] = []
    unknown: list[str] = []
    for name, extra in EXTRAS.items():
        parts = required(name)
        wrong = [said for each in parts if (said := unmet(each))]
        if not parts:
            unknown.append(name)
        elif not wrong:
            there.append(name)
        elif place.root is not None and (why := extra.asked(place)):
            yield Finding("extras", extra.missed, f"{wrong[0]}, and {why}", _how(name))
        elif any(installed_version(each.name) for each in parts):
            yield Finding("extras", "warning", f"{name}: {'; '.join(wrong)}", _how(name))
        else:
            yield Finding("extras", "ok", f"without {name} ({extra.use}); {_how(name)}")
    if unknown:
        says = f"the installed posttrain is older than these sources: {', '.join(unknown)} unknown"
        yield Finding("extras", "warning", says, f"{install_line('--editable .')}, in the clone")
    if there:
        yield Finding("extras", "ok", f"with {', '.join(there)}")


def _how(name: str) -> str:
    # Its own requirements clash with Prefect's: pip refuses what uv is told to override.
    if name == "vllm":
        return "in a clone: uv pip install -e '.[vllm]', or make test-engines without a GPU"
    return install_line(f"posttrain[{name}]")


def _never(_: CheckScope) -> str:
    return ""


def _remote(place: CheckScope) -> str:
    for name in ("config", "config.local"):
        file = place.project / ".dvc" / name
        if file.is_file() and re.search(r"^\s*url\s*=\s*s3:", file.read_text(), re.MULTILINE):
            return f".dvc/{name} has a remote on S3"
    return ""


def _database(place: CheckScope) -> str:
    urls = {"POSTTRAIN_LEDGER": ledger_location(place.project)}
    urls["POSTTRAIN_SCHEDULES"] = os.environ.get("POSTTRAIN_SCHEDULES", "")
    named = [name for name, url in urls.items() if url.startswith("postgres")]
    return f"{named[0]} is on PostgreSQL" if named else ""


def _recipes(pattern: str) -> Callable[[CheckScope], str]:
    def asked(place: CheckScope) -> str:
        for file in (
            *place.project.glob("recipe.yaml"),
            *place.project.glob("recipes/*/recipe.yaml"),
        ):
            if re.search(pattern, file.read_text(encoding="utf-8"), re.MULTILINE):
                return f"{file.relative_to(place.project)} asks for it"
        return ""

    return asked


def _recipe(field: str) -> Callable[[CheckScope], str]:
    return _recipes(rf"^[^#\n]*\b{field}:\s*(?!null\b|~)\S")


EXTRAS: Mapping[str, Extra] = {
    "s3": Extra("DVC remotes on S3", _remote, "broken"),
    "postgres": Extra("ledger and schedules on a server", _database, "broken"),
    "release": Extra("signed releases", _never, "broken"),
    "lora": Extra("training adapters", _recipe("lora"), "warning"),
    "ray": Extra("rollouts and tables on a cluster", _recipe("ray"), "warning"),
    "vllm": Extra(
        "sampling on a GPU", _recipes(r"^[^#\n]*\bengine:[\s{]*(name:\s*)?vllm\b"), "warning"
    ),
}
