"""What git names and the cache must keep: by the `dvc.lock` and `.dvc` files of trees and refs."""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

from posttrain.provenance.git import ask_git, require_git

_MD5 = re.compile(r"\bmd5: *['\"]?([0-9a-f]{32}(?:\.dir)?)")
_NAMED = re.compile(r"(?:^|/)(?:dvc\.lock|[^/]+\.dvc)$")
_ARCHIVE = re.compile(r"^archive-md5: ([0-9a-f]{32})$", re.MULTILINE)


def named(root: Path) -> dict[str, str]:
    """Object -> the first reason to keep it: the files of worktrees, then of refs."""
    found = dict.fromkeys(named_now(root), "a dvc.lock names it")
    for ref, commit in _commits(root):
        reason = "a release names it" if "@v" in ref else f"{ref} names it"
        for md5 in _MD5.findall(_read_locks(root, commit)):
            found.setdefault(md5, reason)
    for md5 in _ARCHIVE.findall(_answer(root, "for-each-ref", "--format=%(contents)", "refs/tags")):
        found.setdefault(md5, "a release names it")
    return found


def named_now(root: Path) -> list[str]:
    """Objects that the `dvc.lock` and `.dvc` files of this project's worktrees name."""
    return list(dict.fromkeys(md5 for text in _texts_now(root) for md5 in _MD5.findall(text)))


def outputs_now(root: Path) -> list[str]:
    """Those of them that are outputs; the code that a stage reads is in git, not in the cache."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    found: list[str] = []
    for text in _texts_now(root):
        with contextlib.suppress(YAMLError, AttributeError, TypeError):
            noted = YAML(typ="safe").load(text)
            stages = noted["stages"].values() if "stages" in noted else [noted]
            found += [out["md5"] for each in stages for out in each.get("outs", ()) if "md5" in out]
    return list(dict.fromkeys(found))


def _texts_now(root: Path) -> Iterator[str]:
    for tree in worktrees(root):
        for file in _lock_files(tree):
            yield file.read_text(encoding="utf-8", errors="replace")


def worktrees(root: Path) -> list[Path]:
    """Folders of all worktrees of the repository, this one first."""
    said = _answer(root, "worktree", "list", "--porcelain")
    trees = [Path(line[9:]) for line in said.splitlines() if line.startswith("worktree ")]
    return [tree for tree in trees if tree.is_dir()]


def _lock_files(tree: Path) -> Iterator[Path]:
    names = ("ls-files", "-z", "--cached", "--others", "--", "*dvc.lock", "*.dvc")
    for name in sorted(set(_answer(tree, *names).split("\0"))):
        file = tree / name
        if name and _NAMED.search(name) and file.is_file():
            yield file


def _commits(root: Path) -> Iterator[tuple[str, str]]:
    """Name and commit of every branch, tag and stash here, and of every worktree's HEAD."""
    listed = _answer(root, "for-each-ref", "--format=%(refname) %(objectname) %(*objectname)")
    for line in listed.splitlines():
        ref, *objects = line.split(" ")
        yield _short(ref), objects[-1] or objects[0]
    for tree in worktrees(root):
        commit = ask_git(tree, "rev-parse", "--verify", "-q", "HEAD") or ""
        if commit:
            yield "a worktree's commit", commit


def _short(ref: str) -> str:
    kinds = {"refs/heads/": "branch ", "refs/remotes/": "branch ", "refs/tags/": "tag "}
    for prefix, kind in kinds.items():
        if ref.startswith(prefix):
            return kind + ref.removeprefix(prefix)
    return ref


def _read_locks(root: Path, commit: str) -> str:
    """The lock files of a commit, one after the other."""
    listed = ask_git(root, "ls-tree", "-r", "-z", "--full-tree", commit) or ""
    blobs = [
        entry.split("\t")[0].split(" ")[2]
        for entry in listed.split("\0")
        if "\t" in entry and _NAMED.search(entry.split("\t", 1)[1])
    ]
    return "\n".join(_answer(root, "cat-file", "blob", blob) for blob in blobs)


def _answer(folder: Path, *arguments: str) -> str:
    """Refuse where git fails: without it what is needed cannot be known."""
    return require_git(folder, *arguments, purpose="nothing was removed")
