"""The installed packages, with a digest of each one's files that does not depend on the machine."""

import csv
import hashlib
import importlib.metadata
import platform
from collections.abc import Mapping
from typing import Any

# What an installer adds for itself, or writes for one machine.
_INSTALLERS_OWN = ("INSTALLER", "REQUESTED", "direct_url.json", "RECORD")


def environment_lock() -> dict[str, Any]:
    """Interpreter, machine and every distribution: version and digest of its installed files."""
    packages: dict[str, Any] = {}
    for distribution in importlib.metadata.distributions():
        name = str(distribution.metadata["Name"]).lower().replace("_", "-")
        packages[name] = {"version": distribution.version, "files_sha256": _digest(distribution)}
    return {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "machine": platform.machine(),
        "system": platform.system(),
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


def differences(lock: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """What is not as it was locked, one sentence each; packages that are only here do not count."""
    found = [
        f"{name} is {here[name]}, it was {lock[name]}"
        for name in ("python", "machine")
        if lock[name] != here[name]
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


def _digest(distribution: importlib.metadata.Distribution) -> str:
    """SHA-256 over the package's own list of files and their hashes (RECORD), sorted."""
    record = distribution.read_text("RECORD") or ""
    rows = [row for row in csv.reader(record.splitlines()) if len(row) >= 2 and row[1]]
    lines = [
        f"{row[0]}\0{row[1]}\n"
        for row in rows
        # Scripts outside of the package folder start with the path of one interpreter.
        if not row[0].startswith("../") and not row[0].endswith(_INSTALLERS_OWN)
    ]
    return hashlib.sha256("".join(sorted(lines)).encode()).hexdigest()
