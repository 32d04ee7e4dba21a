"""The installed packages: their versions, licenses, and digests that hold on any machine."""

import base64
import csv
import importlib.metadata
import json
import platform
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from posttrain.pipeline.hermetic.process import holds_here, isolation
from posttrain.provenance.circumstances import processor
from posttrain.publishing.release.licenses import license_of
from posttrain.stage.hashing import digest_of_files, digest_of_stream

# What an installer adds for itself, or writes for one machine.
_INSTALLERS_OWN = ("INSTALLER", "REQUESTED", "direct_url.json", "RECORD")
_MEANING = (
    "files_sha256 is the SHA-256 of the lines 'PATH NUL HASH LF', sorted, of a package's RECORD, "
    "which names the hash of each file that its wheel installs; lines of the installer's own "
    "files and of scripts outside of the package are left out. archive_sha256 is that of the "
    "wheel itself, which an installer keeps only of one that it was given by its address. Both "
    "are compared by 'posttrain release verify --packages', which also hashes every "
    "installed file anew."
)


def environment_lock() -> dict[str, Any]:
    """Interpreter, machine and every distribution: version, license and digests."""
    packages = {name: _described(distribution) for name, distribution in _installed().items()}
    return {
        "digests": _MEANING,
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "machine": platform.machine(),
        "processor": processor(),
        "accelerator": accelerator(),
        "system": platform.system(),
        "isolation": isolation(held=holds_here()),
        "packages": dict(sorted(packages.items())),
    }


def requirements(lock: Mapping[str, Any]) -> bytes:
    """The same as lines for `pip install -r`."""
    lines = [
        f"{name}=={package['version']}  # installed files sha256:{package['files_sha256']}"
        for name, package in lock["packages"].items()
        if name != "posttrain"
    ]
    return ("\n".join(lines) + "\n").encode()


def package_findings(lock: Mapping[str, Any]) -> list[str]:
    """How this environment is not the one that was locked; every installed file is hashed."""
    return [*differences(lock, environment_lock()), *altered_files(lock)]


def differences(lock: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """What is not as it was locked, one sentence each; packages that are only here do not count."""
    found = [
        f"{name} is {here[name]}, it was {lock[name]}"
        for name in ("python", "implementation", "system", "machine", "processor", "accelerator")
        if name in lock and lock[name] != here[name]
    ]
    for name, package in lock["packages"].items():
        own = here["packages"].get(name)
        if own is None:
            found.append(f"{name} {package['version']} is not installed")
        elif own["version"] != package["version"]:
            found.append(f"{name} is {own['version']}, it was {package['version']}")
        elif own["files_sha256"] != package["files_sha256"] and name != "posttrain":
            found.append(f"{name} {package['version']} has other files than it had")
    return found


def altered_files(lock: Mapping[str, Any]) -> list[str]:
    """Files of locked packages that are not what was installed here, one sentence a package."""
    found = []
    for name, distribution in _installed().items():
        if name not in lock["packages"]:
            continue
        files = ((Path(str(distribution.locate_file(at))), h) for at, h in _recorded(distribution))
        wrong = [path.name for path, recorded in files if _hash_as(recorded, path) != recorded]
        if wrong:
            others = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
            found.append(
                f"{name} {distribution.version}: {wrong[0]}{others} was altered or removed "
                f"after it was installed; pip install --force-reinstall {name}"
            )
    return sorted(found)


def _installed() -> dict[str, importlib.metadata.Distribution]:
    """What is installed, by name; of two with one name, the first on the path: it is imported.

    Not what a package carries within itself and puts on the path when it is imported, as Ray does.
    """
    sites = {Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")}
    found: dict[str, importlib.metadata.Distribution] = {}
    for distribution in importlib.metadata.distributions():
        if sites.isdisjoint(Path(str(distribution.locate_file(""))).parents):
            name = canonicalize_name(str(distribution.metadata["Name"]))
            found.setdefault(name, distribution)
    return found


def _described(distribution: importlib.metadata.Distribution) -> dict[str, Any]:
    found: dict[str, Any] = {
        "version": distribution.version,
        "license": license_of(distribution.metadata.json),
        "files_sha256": _digest_distribution(distribution),
    }
    given = json.loads(distribution.read_text("direct_url.json") or "{}")
    stated = {
        "archive_sha256": given.get("archive_info", {}).get("hashes", {}).get("sha256"),
        "commit": given.get("vcs_info", {}).get("commit_id"),
        "editable": given.get("dir_info", {}).get("editable"),
    }
    return found | {name: value for name, value in stated.items() if value}


def _digest_distribution(distribution: importlib.metadata.Distribution) -> str:
    """SHA-256 over the package's own list of files and their hashes (RECORD), sorted."""
    return digest_of_files(
        (path.encode(), recorded)
        for path, recorded in _recorded(distribution)
        # Scripts outside of the package folder start with the path of one interpreter.
        if not path.startswith("../") and not path.endswith(_INSTALLERS_OWN)
    )


def _recorded(distribution: importlib.metadata.Distribution) -> Iterator[tuple[str, str]]:
    """Path and hash of every file of which RECORD knows one, also where the file is gone."""
    for row in csv.reader((distribution.read_text("RECORD") or "").splitlines()):
        if len(row) >= 2 and row[1]:
            yield row[0], row[1]


def _hash_as(recorded: str, path: Path) -> str:
    """The hash of a file in the form of a recorded one; empty where it cannot be read."""
    algorithm = recorded.partition("=")[0]
    try:
        with path.open("rb") as stream:
            digest = digest_of_stream(stream, algorithm)
    except OSError:
        return ""
    return f"{algorithm}={base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"


def accelerator() -> str:
    """The model of GPU that stages can use."""
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
