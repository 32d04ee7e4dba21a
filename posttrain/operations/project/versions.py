"""The packages that posttrain runs on here, with their versions."""

import importlib.metadata
from collections.abc import Iterator

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

_HEAD = "# The versions with which this project was made: what posttrain doctor compares with.\n"


def constraints() -> str:
    """Text of a constraints file: everything that posttrain needs, as it is installed here."""
    lines = [f"{name}=={version}" for name, version in sorted(required_versions().items())]
    return _HEAD + "\n".join(lines) + "\n"


def required_versions() -> dict[str, str]:
    """Version of every installed distribution that posttrain needs, by canonical name.

    A local version (``+cpu``) says where a package was built; its public part is what is pinned.
    """
    found: dict[str, str] = {}
    seen: set[tuple[str, str]] = set()
    pending = [("posttrain", "")]
    while pending:
        each = pending.pop()
        if each in seen:
            continue
        seen.add(each)
        version = installed_version(each[0])
        if version is not None:
            found[each[0]] = Version(version).public
            pending += _required(*each)
    del found["posttrain"]
    return found


def _required(distribution: str, extra: str) -> Iterator[tuple[str, str]]:
    """What a distribution needs with one of its extras, each with an extra of its own or ''."""
    for line in importlib.metadata.requires(distribution) or ():
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            for wanted in ("", *requirement.extras):
                yield canonicalize_name(requirement.name), wanted


def installed_version(name: str) -> str | None:
    """Version of a distribution; None where it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
