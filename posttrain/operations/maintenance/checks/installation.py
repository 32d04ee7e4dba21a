"""The interpreter, the packages, and the commands that must be found."""

import importlib.metadata
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import Version

from posttrain.operations.maintenance.checks.finding import CheckScope, Finding
from posttrain.operations.project.versions import installed_version
from posttrain.stage.extras import package_line

_OLDEST = (3, 11)
_SHOWN = 3
EXTRAS = {
    "s3": "DVC remotes on S3",
    "postgres": "ledger and schedules on a server",
    "release": "signed releases",
    "lora": "training adapters",
    "ray": "rollouts and tables on a cluster",
    "vllm": "sampling on a GPU",
    "quantized": "weights of 4 bits and optimizer states of 8",
}
"""What can be installed beside the core, and what it is for."""


def python(_: CheckScope) -> Iterator[Finding]:
    """The interpreter's version."""
    says = f"{platform.python_version()} at {sys.executable}"
    if sys.version_info < _OLDEST:
        yield Finding("python", "broken", says, "use Python 3.11 or newer")
    else:
        yield Finding("python", "ok", says)


def packages(_: CheckScope) -> Iterator[Finding]:
    """What posttrain requires is installed, in a version that it takes."""
    core = required(None)
    wrong = [said for each in core if (said := unmet(each))]
    if wrong:
        yield Finding("packages", "broken", _listed(wrong), install_line("posttrain"))
    else:
        own = importlib.metadata.version("posttrain")
        yield Finding("packages", "ok", f"posttrain {own} and all {len(core)} that it requires")


def versions(place: CheckScope) -> Iterator[Finding]:
    """The versions are those that the project was tested with."""
    file = place.project / "constraints.txt"
    if not file.is_file():
        return
    pinned = dict(_pins(file))
    here = {name: version for name in pinned if (version := installed_version(name))}
    other = [
        f"{name} is {version}, tested with {pinned[name]}"
        for name, version in here.items()
        if Version(version).public != pinned[name]
    ]
    if other:
        remedy = f"{install_line('posttrain')}; or run the tests with these versions"
        yield Finding("versions", "warning", _listed(other), remedy)
    else:
        yield Finding("versions", "ok", f"{len(here)} packages as in {file.name}")


def commands(_: CheckScope) -> Iterator[Finding]:
    """Stock `dvc repro` runs `python -m posttrain`: both must be those of this environment."""
    folder = Path(sys.executable).parent
    remedy = f"source {folder / 'activate'}; only stock dvc commands need it"
    if shutil.which("git") is None:
        yield Finding("path", "broken", "git is not installed", "install git")
    elsewhere = [name for name in ("python", "dvc") if not _belongs_to(folder, name)]
    if elsewhere:
        says = f"{' and '.join(elsewhere)} of this environment not on PATH"
        yield Finding("path", "warning", says, remedy)
    else:
        yield Finding("path", "ok", f"python and dvc of {folder}")


def extras(_: CheckScope) -> Iterator[Finding]:
    """Every extra: there, or not, with the line that installs it."""
    there: list[str] = []
    for name, use in EXTRAS.items():
        parts = required(name)
        wrong = [said for each in parts if (said := unmet(each))]
        # Its own requirements clash with Prefect's: pip refuses what uv is told to override.
        how = install_line(f"posttrain[{name}]")
        if name == "vllm":
            how = f"{package_line(name)}; without a GPU, {package_line(name, device='cpu')}"
        if not wrong:
            there.append(name)
        elif any(installed_version(each.name) for each in parts):
            yield Finding("extras", "warning", f"{name}: {'; '.join(wrong)}", how)
        else:
            yield Finding("extras", "ok", f"without {name} ({use}); {how}")
    if there:
        yield Finding("extras", "ok", f"with {', '.join(there)}")


def required(extra: str | None) -> list[Requirement]:
    """What posttrain itself needs, or what one of its extras adds."""
    lines = importlib.metadata.requires("posttrain") or ()
    found = []
    for each in (Requirement(line) for line in lines):
        core = each.marker is None or each.marker.evaluate({"extra": ""})
        if core if extra is None else not core and _wanted(each, extra):
            found.append(each)
    return found


def unmet(requirement: Requirement) -> str:
    """What is wrong with the installed version of a package; empty if nothing is."""
    version = installed_version(requirement.name)
    if version is None:
        return f"{requirement.name} is not installed"
    if not requirement.specifier.contains(version, prereleases=True):
        return f"{requirement.name} is {version}, {requirement.specifier} is needed"
    return ""


def install_line(what: str) -> str:
    """The command that installs posttrain, or an extra of it, into this environment."""
    program = "python" if _belongs_to(Path(sys.executable).parent, "python") else sys.executable
    pinned = " -c constraints.txt" if Path("constraints.txt").is_file() else ""
    quoted = f"'{what}'" if "[" in what else what
    return f"{program} -m pip install{pinned} {quoted}"


def _wanted(requirement: Requirement, extra: str) -> bool:
    return requirement.marker is not None and requirement.marker.evaluate({"extra": extra})


def _belongs_to(folder: Path, name: str) -> bool:
    """Return whether a command on PATH is the one of this environment."""
    found = shutil.which(name)
    return found is not None and os.path.realpath(Path(found).parent) == os.path.realpath(folder)


def _pins(file: Path) -> Iterator[tuple[str, str]]:
    for line in file.read_text(encoding="utf-8").splitlines():
        try:
            requirement = Requirement(line.partition("#")[0])
        except InvalidRequirement:
            continue
        for specifier in requirement.specifier:
            if specifier.operator == "==":
                yield requirement.name, specifier.version


def _listed(wrong: list[str]) -> str:
    more = f", and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
    return "; ".join(wrong[:_SHOWN]) + more
