"""Third-party packages: which distribution an import comes from, and its version."""

import contextlib
import importlib.metadata
import json
import re
import sys
from collections.abc import Iterable, Mapping
from functools import cache as memoize
from pathlib import Path

from posttrain.provenance.code.store import write_if_possible
from posttrain.stage.hashing import sha256_of

ABSENT = "not installed"


def distributions(imports: Iterable[str], *, cache: Path | None = None) -> frozenset[str]:
    """Find the distributions that provide imports, the standard library left out.

    Args:
        imports: Top-level names, such as `torch`.
        cache: File in which what packages provide is remembered; None looks every time.

    Returns:
        Names of distributions. An import that nothing installed provides stands for itself:
        installing it may change what runs.

    """
    # An empty parameter of code that imports by name names nothing.
    third_party = {name for name in imports if name and name not in sys.stdlib_module_names}
    return frozenset(found for name in third_party for found in _providers(name, cache))


def released(imports: Iterable[str], *, cache: Path | None = None) -> frozenset[str]:
    """Find the distributions of imports that have a version to go by.

    What is installed for editing, or lies in a folder on the path, counts by its source alone.

    Args:
        imports: Top-level names.
        cache: As for `distributions`.

    Returns:
        Names of distributions that are installed, and not for editing.

    """
    found = distributions(imports, cache=cache)
    return frozenset(name for name in found if version(name) != ABSENT and not _editable(name))


@memoize
def optional(distribution: str) -> frozenset[str]:
    """Distributions that `distribution` asks for in its extras and nowhere else."""
    try:
        requirements = importlib.metadata.requires(distribution) or []
    except importlib.metadata.PackageNotFoundError:
        return frozenset()
    named: dict[bool, set[str]] = {True: set(), False: set()}
    for requirement in requirements:
        name = re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]
        named["extra ==" in requirement].add(name)
    return frozenset(named[True] - named[False])


@memoize
def version(distribution: str) -> str:
    """Installed version of a distribution."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ABSENT


def _editable(distribution: str) -> bool:
    """True for what `pip install -e` installed (PEP 660: direct_url.json says so)."""
    text = importlib.metadata.distribution(distribution).read_text("direct_url.json")
    origin = json.loads(text) if text else {}
    return bool(origin.get("dir_info", {}).get("editable", False))


@memoize
def _providers(name: str, cache: Path | None) -> tuple[str, ...]:
    # Nearly every package is called what it is imported as, and asking for one is cheap.
    if version(name) != ABSENT:
        return (name,)
    return tuple(sorted(set(_installed(cache).get(name, (name,)))))


@memoize
def _installed(cache: Path | None) -> Mapping[str, list[str]]:
    """All top-level names with their distributions; cached, as it reads every list of files."""
    state = _environment()
    file = cache / "distributions.json" if cache is not None else None
    if file is not None:
        with contextlib.suppress(OSError, ValueError, TypeError):
            known, names = json.loads(file.read_bytes())
            if known == state:
                return dict(names)
    names = importlib.metadata.packages_distributions()
    if file is not None:
        write_if_possible(file, json.dumps([state, names]).encode())
    return names


def _environment() -> str:
    """Changes whenever something is installed: the import path and its folders' mtimes."""
    folders = [Path(entry) for entry in sys.path if entry and Path(entry).is_dir()]
    state = [f"{folder} {folder.stat().st_mtime_ns}" for folder in folders]
    return sha256_of("\n".join([sys.version, *state]))
