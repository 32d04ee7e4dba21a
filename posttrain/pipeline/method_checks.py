"""Checks that are kept: `methods/checks.jsonl` of a project, and what ships with posttrain.

A check is bound to what the method comes to: where its settings, or those of a method that it
changes, or the defaults are others by now, the check is stale and counts for nothing; so it is
where the project's own code that it rests on moved. One line for each method and kind of check, the
last one.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from posttrain.methods.find import (
    SHIPPED,
    FoundMethod,
    find_method,
    has_method,
    method_folders,
    own_folder,
)
from posttrain.methods.method import Method
from posttrain.pipeline.check_code import CheckKind, code_of_check
from posttrain.pipeline.kept_lines import kept_lines
from posttrain.pipeline.recipe_method import sections_of_method
from posttrain.pipeline.recipe_schema import stages_of_flow
from posttrain.stage.config import StageConfig
from posttrain.stage.errors import UserError
from posttrain.stage.hashing import sha256_of_json
from posttrain.stage.spec import Task

CHECKS = "checks.jsonl"
"""In the folder of methods."""


@dataclass(frozen=True)
class KeptCheck:
    """One line of the file."""

    method: str
    kind: CheckKind
    """What was looked at: what its switches do, or its gradients against its formula."""
    passed: bool
    says: str
    """What was found, in figures."""
    digest: str
    """Of what the method came to."""
    commit: str
    """Of the project, where it was checked."""
    code: str = ""
    """Of the project's own code that it rests on, see `code_of_check`; empty where all ships."""


def digest_of_method(method: Method, tasks: Mapping[str, Task]) -> str:
    """SHA-256 of every section that a method sets, resolved.

    Args:
        method: The method.
        tasks: What each section of a recipe is for.

    Returns:
        Its digits; equal ones mean the same settings by value.

    Raises:
        UserError: What it sets is refused.

    """
    digest, _ = _resolved(method, tasks)
    return digest


def made_check(
    found: FoundMethod, kind: CheckKind, root: Path, *, passed: bool, says: str, commit: str
) -> KeptCheck:
    """Make the line that is kept of a check, bound to what the method is now.

    Args:
        found: The method.
        kind: What was looked at.
        root: The project.
        passed: Whether it did.
        says: What was found, in figures.
        commit: Of the project.

    Returns:
        The line.

    Raises:
        UserError: What the method sets is refused.

    """
    digest, configs = _resolved(found.method, stages_of_flow("flows.post_training", root))
    code = code_of_check(found, kind, configs, root)
    return KeptCheck(found.method.name, kind, passed, says, digest, commit, code)


def kept_checks() -> dict[tuple[str, str], KeptCheck]:
    """Read the checks of every method, by method and kind; a project's own go first."""
    found: dict[tuple[str, str], KeptCheck] = {}
    for folder in reversed(method_folders()):
        found |= _read(folder / CHECKS)
    return found


def keep_checks(root: Path, checks: Iterable[KeptCheck]) -> Path:
    """Put checks into the project's file, in the place of those of the same method and kind.

    Args:
        root: The project.
        checks: What was found.

    Returns:
        The file.

    """
    path = own_folder(root) / CHECKS
    known = _read(path)
    for each in checks:
        before = known.get((each.method, each.kind))
        # The same found again at another commit says nothing new.
        if before is None or asdict(before) | {"commit": each.commit} != asdict(each):
            known[each.method, each.kind] = each
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(_line(known[key]) for key in sorted(known)), encoding="utf-8")
    return path


def standing_checks(methods: Sequence[FoundMethod], root: Path) -> dict[str, dict[str, KeptCheck]]:
    """Find the checks that were made of methods as they are today.

    Args:
        methods: Those that are asked about.
        root: The project.

    Returns:
        By name, of those that were ever checked, and kind; no entry of what was checked when it
        came to something else.

    """
    kept, tasks = kept_checks(), stages_of_flow("flows.post_training", root)
    names = {name for name, _ in kept}
    found: dict[str, dict[str, KeptCheck]] = {}
    for each in methods:
        name = each.method.name
        if name not in names:
            continue
        of_it = {check.kind: check for (method, _), check in kept.items() if method == name}
        found[name] = {}
        # What cannot be resolved is not what was checked.
        with suppress(UserError):
            digest, configs = _resolved(each.method, tasks)
            found[name] = {
                kind: check
                for kind, check in of_it.items()
                if check.digest == digest and check.code == code_of_check(each, kind, configs, root)
            }
    return found


def checks_of(method: Method, root: Path) -> dict[str, str]:
    """Say what was found in the checks of a method.

    Args:
        method: The method.
        root: The project.

    Returns:
        A sentence by kind of check. One that was made when the method came to something else counts
        for nothing, and is said to be stale: any section counts, also one that trains nothing.

    """
    standing = standing_checks([_with_place(method)], root).get(method.name, {})
    found: dict[str, str] = {}
    for (name, kind), kept in kept_checks().items():
        if name != method.name:
            continue
        told = f"{'passed' if kept.passed else 'failed'}, {kept.says}"
        if kind not in standing:
            option = "--gradients " if kind == "gradients" else ""
            again = f"posttrain method check {option}{name}"
            moved = "stale, as what it sets, or code that it reads, is another since"
            told = f"{moved}; it {told}; again: {again}"
        found[kind] = told
    return found


def passed_checks(standing: Mapping[str, Mapping[str, KeptCheck]]) -> frozenset[str]:
    """Name the methods that passed, as they are today, what they were checked for.

    Args:
        standing: Of `standing_checks`.

    Returns:
        Names of those whose switches were seen to act, and of whose gradients nothing else is
        known than that they are their formula's.

    """
    return frozenset(
        name
        for name, checks in standing.items()
        if "switches" in checks and all(check.passed for check in checks.values())
    )


def stale_checks(standing: Mapping[str, Mapping[str, KeptCheck]]) -> frozenset[str]:
    """Name the methods of which a check was kept that counts for nothing by now.

    Args:
        standing: Of `standing_checks`.

    Returns:
        Their names.

    """
    return frozenset(
        name for name, kind in kept_checks() if name in standing and kind not in standing[name]
    )


def _resolved(method: Method, tasks: Mapping[str, Task]) -> tuple[str, Sequence[StageConfig]]:
    """The digest of what a method comes to, and the sections that it is of."""
    sections = sections_of_method(method, tasks)
    digest = sha256_of_json({name: config.keyed() for name, config in sections.items()})
    return digest, [*sections.values()]


def _with_place(method: Method) -> FoundMethod:
    """A method with its file, beside which its formula stands; one that has none is by itself."""
    return find_method(method.name) if has_method(method.name) else FoundMethod(method, SHIPPED)


def _line(check: KeptCheck) -> str:
    """A check as it is kept; one that rests on no code of the project's own says nothing of it."""
    said = {name: value for name, value in asdict(check).items() if name != "code" or value}
    return json.dumps(said, sort_keys=True) + "\n"


def _read(path: Path) -> dict[tuple[str, str], KeptCheck]:
    complaint = "this is no check; take the line out, and make it again with posttrain method check"
    return {
        (check.method, check.kind): check
        for check in kept_lines(path, KeptCheck, complaint=complaint)
    }
