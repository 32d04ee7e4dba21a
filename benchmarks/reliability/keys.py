"""Does a key that stays mean bytes that stay? Random projects, a random edit, executed for real.

    python -m benchmarks.reliability.keys --cases 2000 --out benchmarks/reliability/keys.json

Each case is a project of three to seven fragments (`projects.py`), a stage that computes with them,
and one edit. The stage is executed in a forked process before and after, as a stage is: with the
declared variables alone, and noting every file below the root that is opened and is none of those
that its closure foretells. Such a case is held by the refusal of that read, not by the key.
"""

import argparse
import json
import multiprocessing
import multiprocessing.connection
import os
import random
import re
import sys
import tempfile
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.reliability.projects import FRAGMENTS, Fragment
from posttrain.provenance.code import CodeReader, installed_versions, requirements
from posttrain.stage.hashing import sha256_of

ESCAPED = "bytes differ, key equal"
REFUSED = "bytes would differ, key equal, the read is refused"
SEEN = "bytes differ, key differs"
CALM = "bytes equal, key equal"
NEEDLESS = "bytes equal, key differs"
OUTCOMES = (SEEN, CALM, NEEDLESS, REFUSED, ESCAPED)

_KINDS = ("value", "value", "value", "unused value", "comment", "docstring", "blank lines")


@dataclass
class Project:
    """One random project: its folder, its variables, and where its values stand."""

    folder: Path
    variables: dict[str, str] = field(default_factory=dict)
    reached: list[tuple[Path | str, str, str]] = field(default_factory=list)
    unreached: list[tuple[Path | str, str, str]] = field(default_factory=list)
    sources: list[Path] = field(default_factory=list)

    @property
    def root(self) -> Path:
        """The project's root; packages lie beside it."""
        return self.folder / "root"

    @property
    def site(self) -> Path:
        """Where packages are installed."""
        return self.folder / "site"


def main() -> None:
    options = _options()
    started = time.monotonic()
    found: Counter[str] = Counter()
    ways: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for number in range(options.cases):
        outcome, way = case(options.seed + number)
        found[outcome] += 1
        ways[way][outcome] += 1
        if outcome == ESCAPED:
            print(f"case {options.seed + number}: {way}: {outcome}", flush=True)
    seconds = time.monotonic() - started
    for outcome in OUTCOMES:
        print(f"{found[outcome]:6d}  {outcome}")
    changed = found[SEEN] + found[NEEDLESS]
    print(f"needless: {found[NEEDLESS]} of {changed} changed keys; {seconds:.0f} s")
    if options.out:
        report = {
            "cases": options.cases,
            "seed": options.seed,
            "outcomes": {each: found[each] for each in OUTCOMES},
            "by way": {way: dict(ways[way]) for way in sorted(ways)},
        }
        options.out.write_text(json.dumps(report, indent=1) + "\n")
    sys.exit(int(found[ESCAPED] > 0))


def case(seed: int) -> tuple[str, str]:
    """Make a project, edit it, and compare keys and bytes.

    Args:
        seed: Of everything random in it.

    Returns:
        The outcome, and the fragment and kind of the edit.

    """
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="posttrain-keys-") as folder:
        project = Project(Path(folder))
        chosen = rng.sample(FRAGMENTS, rng.randint(3, 7))
        _write(project, chosen, rng)
        saved = sys.path[:]
        sys.path[:0] = [str(project.root), str(project.site)]
        try:
            key, files = _key(project)
            before, _ = _executed(project, files)
            way = _edit(project, rng)
            other, files = _key(project)
            after, surplus = _executed(project, files)
        finally:
            sys.path[:] = saved
    return outcome_of(before != after, key != other, surplus), way


def outcome_of(bytes_differ: bool, key_differs: bool, surplus: list[str]) -> str:
    """Name what came of an edit.

    Args:
        bytes_differ: Whether the stage came to other bytes.
        key_differs: Whether it got another key.
        surplus: Files that it read and that its closure does not foretell.

    Returns:
        One of `OUTCOMES`.

    """
    if bytes_differ:
        return SEEN if key_differs else REFUSED if surplus else ESCAPED
    return NEEDLESS if key_differs else CALM


def _write(project: Project, chosen: list[Fragment], rng: random.Random) -> None:
    stage, terms = [], []
    for number, fragment in enumerate(chosen, start=1):
        files = re.split(
            r"^# (?=\S+(?:\.py|\.json|\.txt)$|ENVIRONMENT$|PACKAGE )", fragment.files, flags=re.M
        )
        for text in filter(None, files):
            name, _, body = text.partition("\n")
            _put(project, fragment, _numbered(name, number), _numbered(body, number), rng)
        stage.append(_numbered(fragment.imports, number))
        terms.append(_numbered(fragment.expr, number))
    text = "\n".join([*stage, "def run():", *(f"    yield repr({term})" for term in terms), ""])
    for package in ("stages", "lib"):
        (project.root / package).mkdir(parents=True, exist_ok=True)
        (project.root / package / "__init__.py").touch()
    (project.root / "stages/main.py").write_text(text)
    project.sources.append(project.root / "stages/main.py")


def _put(project: Project, fragment: Fragment, name: str, body: str, rng: random.Random) -> None:
    value, other = str(rng.randint(10_000, 99_999)), str(rng.randint(10_000, 99_999))
    text = re.sub(r"\bW\b", other, re.sub(r"\bV\b", value, body))
    if name == "ENVIRONMENT":
        variable, _, value = text.strip().partition("=")
        project.variables[variable] = value
        project.reached.append((variable, value, fragment.name))
        return
    if name.startswith("PACKAGE "):
        _, package, *rest = name.split()
        path = _install(project.site, package, text, "1.0", rest[1:])
    else:
        path = project.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        if path.suffix == ".py":
            project.sources.append(path)
    if value in text:
        project.reached.append((path, value, fragment.name))
    if other in text:
        project.unreached.append((path, other, fragment.name))


def _install(site: Path, package: str, text: str, version: str, requires: list[str]) -> Path:
    """Write a package as it lies where it is installed."""
    path, info = site / f"{package}.py", site / f"{package}-1.0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    lines = [f"Name: {package}", f"Version: {version}", *(f"Requires-Dist: {n}" for n in requires)]
    (info / "METADATA").write_text("\n".join(lines) + "\n\n")
    (info / "RECORD").write_text(f"{package}.py,,\n")
    return path


def _numbered(text: str, number: int) -> str:
    return re.sub(r"N(?![A-Za-z])", str(number), text)


def _edit(project: Project, rng: random.Random) -> str:
    """Change one thing; a package is released anew with it."""
    kind = rng.choice(_KINDS)
    if kind == "unused value" and not project.unreached:
        kind = "comment"
    if kind.endswith("value"):
        where, old, way = rng.choice(project.reached if kind == "value" else project.unreached)
        _change(project, where, old)
        return way if kind == "value" else f"{way}, {kind}"
    path = rng.choice(project.sources)
    text = path.read_text()
    texts = {
        "comment": f"{text}# a word\n",
        "docstring": f'"""What this is."""\n{text}',
        "blank lines": "\n\n".join(text.split("\n\n")) + "\n\n",
    }
    path.write_text(texts[kind])
    return kind


def _change(project: Project, where: Path | str, old: str) -> None:
    new = str(int(old) + 1)
    if isinstance(where, str):
        project.variables[where] = new
        return
    where.write_text(where.read_text().replace(old, new))
    metadata = where.parent / f"{where.stem}-1.0.dist-info" / "METADATA"
    if metadata.exists():
        metadata.write_text(metadata.read_text().replace("Version: 1.0", "Version: 1.1"))


def _key(project: Project) -> tuple[str, frozenset[str]]:
    """The digest of the stage's code, packages and declared variables; files that it foretells."""
    for name in ("_installed", "_required", "_headers", "_folders"):
        getattr(requirements, name).cache_clear()
    heads = {path.relative_to(project.root).parts[0] for path in project.sources}
    folders = sorted(head for head in heads if not head.endswith(".py"))
    packages = [*folders, *(head.removesuffix(".py") for head in heads - {*folders})]
    closure = CodeReader(project.root, packages=packages).closure("stages.main:run")
    versions = installed_versions(closure.packages)
    declared = {n: v for n, v in project.variables.items() if n.startswith("DECLARED")}
    return (
        sha256_of(repr((closure.digest, versions, sorted(declared.items())))),
        frozenset(map(str, closure.files)),
    )


def _executed(project: Project, files: frozenset[str]) -> tuple[str, list[str]]:
    """What the stage yields in a process of its own, and what it read that nothing foretold."""
    ours, theirs = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(
        target=_execute, args=(project, files, theirs)
    )
    process.start()
    theirs.close()
    try:
        result: tuple[str, list[str]] = ours.recv()
    finally:
        process.join()
    return result


def _execute(
    project: Project, files: frozenset[str], pipe: multiprocessing.connection.Connection
) -> None:
    root, surplus = f"{project.root}{os.sep}", []

    def note(event: str, arguments: tuple[object, ...]) -> None:
        if event == "open" and isinstance(arguments[0], str | os.PathLike):
            path = os.path.abspath(os.fspath(arguments[0]))  # noqa: PTH100 - as it is opened
            if path.startswith(root) and path not in files and not path.endswith(".pyc"):
                surplus.append(path)

    os.chdir(project.root)
    for name in [name for name in os.environ if name not in ("PATH", "HOME")]:
        del os.environ[name]
    declared = {n: v for n, v in project.variables.items() if n.startswith("DECLARED")}
    os.environ.update(declared)
    sys.dont_write_bytecode = True
    sys.addaudithook(note)
    try:
        from stages.main import run  # type: ignore[import-not-found]

        said = "\n".join(run())
    except Exception as error:  # noqa: BLE001 - an edit may break a stage: then that is its result
        said = f"{type(error).__name__}: {error}"
    pipe.send((said, surplus))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0, help="of the first case")
    parser.add_argument("--out", type=Path, help="write the figures here, as JSON")
    return parser.parse_args()


if __name__ == "__main__":
    main()
