"""The installed packages behind those that code imports, each with what is installed of it."""

import base64
import contextlib
import itertools
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache as memoize
from importlib.util import find_spec
from pathlib import Path

from posttrain.provenance.code.distributions import ABSENT, version
from posttrain.provenance.code.seen import signature_of
from posttrain.stage.hashing import sha256_of_file, sha256_of_parts

COMPUTES_NOTHING = frozenset(
    {
        "annotated-doc", "anyio", "certifi", "charset-normalizer", "click", "colorama", "filelock",
        "h11", "h2", "hf-xet", "hpack", "httpcore", "httpcore2", "httpx", "httpx2", "hyperframe",
        "idna", "markdown-it-py", "mdurl", "pygments", "requests", "rich", "setuptools",
        "shellingham", "sniffio", "tqdm", "truststore", "typer", "typing-extensions", "urllib3",
        "wcwidth",
    }
)  # fmt: skip
"""What other packages require to print, to wait, or to fetch bytes whose digest is checked.

Where first-party code itself imports one of them, it counts.
"""

_LARGEST_RECORD = 40_000
"""Bytes of a list of files; of a package with a longer one it is not looked whether it was edited,
as that takes as long as all else of a plan."""

_CODE = (".py", ".so")
_INSTALLING_NS = 2_000_000_000
# As the specification of dependencies has it; what follows is a version, extras or an address.
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?(?=\s*(?:$|[\[(@<>=!~]))")


def installed_versions(packages: Iterable[str]) -> dict[str, str]:
    """Find the versions of packages and of all that they require, extras left out.

    Args:
        packages: Distributions that code imports.

    Returns:
        Version by name; with a digest of the files of one that is installed for editing, or was
        edited in place. Of a module that no distribution provides, the digest of its files.

    """
    found = {name: _installed(name) for name in packages}
    known = {_canonical(name) for name in found}
    pending = sorted(found)
    while pending:
        for name in _required(pending.pop()) - known - COMPUTES_NOTHING:
            known.add(name)
            if (each := _installed(name)) is not None:
                found[name] = each
                pending.append(name)
    return {name: found[name] or _lying_about(name) for name in sorted(found)}


def _lying_about(name: str) -> str:
    """What stands for a module that lies in a folder on the path: the digest of its files."""
    installed = version(name)
    if installed != ABSENT or name in sys.stdlib_module_names:
        return installed
    files = list(_files_of(name))
    if not any(file.name == "__init__.py" for file in files):
        # Any folder may be imported, one of logs, too.
        files = [file for file in files if file.suffix in _CODE]
    present = [file for file in files if "__pycache__" not in file.parts]
    return f"content {_digest(present)[:12]}" if present else ABSENT


@memoize
def _required(distribution: str) -> frozenset[str]:
    lines = _headers(distribution).get("Requires-Dist", [])
    named = (_wanted(line) for line in lines if "extra ==" not in line)
    return frozenset(_canonical(name) for name in named if name is not None)


def _wanted(requirement: str) -> str | None:
    """The name in a requirement; None where it says that it is for another machine."""
    if ";" not in requirement and (simple := _NAME.match(requirement)) is not None:
        return simple[0]
    from packaging.requirements import Requirement

    each = Requirement(requirement)
    return each.name if each.marker is None or each.marker.evaluate() else None


@memoize
def _installed(distribution: str) -> str | None:
    """The version, and what was changed since; None of what is not installed."""
    found = _headers(distribution).get("Version")
    if not found:
        return None
    edited = _edited(distribution)
    return f"{found[0]} edited {edited[:12]}" if edited else found[0]


@memoize
def _headers(distribution: str) -> dict[str, list[str]]:
    """The first part of the metadata; the library parses the whole, which costs ten times that."""
    folder = _folders(tuple(sys.path)).get(_canonical(distribution))
    if folder is None:
        return {}
    found: dict[str, list[str]] = {}
    with contextlib.suppress(OSError), (folder / "METADATA").open(encoding="utf-8") as lines:
        # A license that goes on over lines has empty ones, with blanks: they do not end it.
        for line in itertools.takewhile(lambda line: line != "\n", lines):
            name, colon, value = line.partition(": ")
            if colon:
                found.setdefault(name, []).append(value.strip())
    return found


@memoize
def _folders(path: tuple[str, ...]) -> Mapping[str, Path]:
    """Where the metadata of each distribution lie, by its name; the first on the path counts."""
    found: dict[str, Path] = {}
    for entry in (Path(each) for each in path if Path(each).is_dir()):
        for name in os.listdir(entry):  # noqa: PTH208 - names alone
            if name.endswith(".dist-info"):
                found.setdefault(_canonical(name.partition("-")[0]), entry / name)
    return found


def _edited(distribution: str) -> str:
    """Digest of the code of a package that is not as it was installed, else nothing."""
    folder = _folders(tuple(sys.path))[_canonical(distribution)]
    origin = json.loads(_text(folder, "direct_url.json") or "{}")
    if origin.get("dir_info", {}).get("editable"):
        names = (_text(folder, "top_level.txt") or distribution.replace("-", "_")).split()
        return _digest(file for name in names for file in _code_of(name))
    record = folder / "RECORD"
    if not record.is_file() or record.stat().st_size > _LARGEST_RECORD:
        return ""
    written = record.stat().st_mtime_ns + _INSTALLING_NS
    rows = (line.rsplit(",", 2) for line in record.read_text(encoding="utf-8").splitlines())
    files = {f"{folder.parent}/{row[0]}": row[1] for row in rows if row[0].endswith(_CODE)}
    signs = ((file, signature_of(file)) for file in files)
    later = [Path(file) for file, sign in signs if sign is not None and sign[0] > written]
    if all(_is_recorded(file, files[str(file)]) for file in later):
        return ""
    return _digest(map(Path, files))


def _text(folder: Path, name: str) -> str:
    return (folder / name).read_text(encoding="utf-8") if (folder / name).is_file() else ""


def _is_recorded(file: Path, digest: str) -> bool:
    raw = bytes.fromhex(sha256_of_file(file))
    made = base64.urlsafe_b64encode(raw).rstrip(b"=")
    return digest == f"sha256={made.decode()}"


def _code_of(name: str) -> Iterator[Path]:
    return (file for file in _files_of(name) if file.suffix in _CODE)


def _files_of(name: str) -> Iterator[Path]:
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        return
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        yield from Path(folder).rglob("*")
    if spec is not None and spec.origin and not spec.submodule_search_locations:
        yield Path(spec.origin)


def _digest(files: Iterable[Path]) -> str:
    present = sorted(file for file in files if file.is_file())
    return sha256_of_parts(f"{file.name} {sha256_of_file(file)}\n".encode() for file in present)


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
