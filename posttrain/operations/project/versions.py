"""The packages that posttrain runs on here, with their versions, and where it came from itself."""

import importlib.metadata
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

WHEELS = "wheels"
"""Folder of a project for a wheel that no index has."""
_FROM_A_FOLDER = """\
# posttrain was installed from a folder. Until an index has this version, put its wheel into this
# project, once: python -m pip wheel --no-deps --wheel-dir wheels FOLDER
"""
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


class Origin(NamedTuple):
    """How a project gets the posttrain that wrote it."""

    lines: str
    """Of a requirements file."""
    local: bool = False
    """True where no server is known to have it: the project has a folder of wheels."""
    wheel: Path | None = None
    """What has to lie in that folder, where it is on this machine."""


def origin(version: str, record: str | None) -> Origin:
    """Say how the installed posttrain is got again.

    An index has what was installed from one, and a server what came from an address. A wheel on
    this machine goes with the project.

    Args:
        version: Of posttrain.
        record: ``direct_url.json`` of the installed distribution (PEP 610); None where an index
            gave it.

    Returns:
        Lines of a requirements file, and the wheel that they look for.

    """
    pinned = f"posttrain=={version}"
    found: dict[str, Any] = json.loads(record) if record else {}
    if not found:
        return Origin(pinned)
    address = urlsplit(found["url"])
    if (vcs := found.get("vcs_info")) and address.scheme != "file":
        return Origin(f"posttrain @ {vcs['vcs']}+{found['url']}@{vcs['commit_id']}")
    if address.scheme != "file":
        return Origin(f"posttrain @ {found['url']}")
    file = Path(unquote(address.path))
    lines = f"--find-links {WHEELS}\n{pinned}"
    if file.suffix == ".whl" and file.is_file():
        return Origin(lines, local=True, wheel=file)
    return Origin(_FROM_A_FOLDER + lines, local=True)


def installed_origin() -> Origin:
    """Say how the posttrain that runs here is got again."""
    distribution = importlib.metadata.distribution("posttrain")
    return origin(distribution.version, distribution.read_text("direct_url.json"))
