"""Checks that are kept: `methods/checks.jsonl` of a project, and what ships with posttrain.

A check is bound to what the method comes to: where its settings, or those of a method that it
changes, or the defaults are others by now, the check is stale and counts for nothing. One line for
each method and kind of check, the last one.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from posttrain.methods.find import FoundMethod, method_folders, own_folder
from posttrain.methods.method import Method
from posttrain.pipeline.kept_lines import kept_lines
from posttrain.pipeline.recipe_method import sections_of_method
from posttrain.pipeline.recipe_schema import stages_of_flow
from posttrain.stage.errors import UserError
from posttrain.stage.hashing import sha256_of_json
from posttrain.stage.spec import Task

CHECKS = "checks.jsonl"
"""In the folder of methods."""

CheckKind = Literal["switches", "gradients"]


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
    sections = sections_of_method(method, tasks)
    return sha256_of_json({name: config.keyed() for name, config in sections.items()})


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
    lines = [json.dumps(asdict(known[key]), sort_keys=True) + "\n" for key in sorted(known)]
    path.write_text("".join(lines), encoding="utf-8")
    return path


def standing_checks(methods: Sequence[FoundMethod], root: Path) -> dict[str, dict[str, KeptCheck]]:
    """Find the checks that were made of methods as they are today.

    Args:
        methods: Those that are asked about.
        root: The project.

    Returns:
        By name and kind; no entry of what was checked when it came to something else.

    """
    kept, tasks = kept_checks(), stages_of_flow("flows.post_training", root)
    names = {name for name, _ in kept}
    found: dict[str, dict[str, KeptCheck]] = {}
    for each in methods:
        name = each.method.name
        if name not in names:
            continue
        try:
            digest = digest_of_method(each.method, tasks)
        except UserError:
            # What cannot be resolved is not what was checked.
            continue
        of_it = {kind: check for (method, kind), check in kept.items() if method == name}
        found[name] = {kind: check for kind, check in of_it.items() if check.digest == digest}
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
    standing = standing_checks([FoundMethod(method, Path())], root).get(method.name, {})
    found: dict[str, str] = {}
    for (name, kind), kept in kept_checks().items():
        if name != method.name:
            continue
        told = f"{'passed' if kept.passed else 'failed'}, {kept.says}"
        if kind not in standing:
            option = "--gradients " if kind == "gradients" else ""
            again = f"posttrain method check {option}{name}"
            told = f"stale, as what it sets came to something else since; it {told}; again: {again}"
        found[kind] = told
    return found


def passed_checks(methods: Sequence[FoundMethod], root: Path) -> frozenset[str]:
    """Name the methods that passed, as they are today, what they were checked for.

    Args:
        methods: Those that are asked about.
        root: The project.

    Returns:
        Names of those whose switches were seen to act, and of whose gradients nothing else is
        known than that they are their formula's.

    """
    return frozenset(
        name
        for name, checks in standing_checks(methods, root).items()
        if "switches" in checks and all(check.passed for check in checks.values())
    )


def _read(path: Path) -> dict[tuple[str, str], KeptCheck]:
    complaint = "this is no check; take the line out, and make it again with posttrain method check"
    return {
        (check.method, check.kind): check
        for check in kept_lines(path, KeptCheck, complaint=complaint)
    }
