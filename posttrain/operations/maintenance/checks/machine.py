"""How stages are held, disk, git, and the programs of the system that a recipe needs."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from posttrain.backends.sandbox.launch import Sandbox
from posttrain.operations.maintenance.checks.finding import CheckScope, Finding
from posttrain.operations.maintenance.reading import ledger_as_it_is
from posttrain.pipeline.hermetic.landlock import SINCE
from posttrain.pipeline.hermetic.process import ISOLATION, holds_here, isolation
from posttrain.pipeline.programs import absent_packages, absent_programs, programs_of
from posttrain.pipeline.recipe import load_recipe
from posttrain.provenance.git import ask_git
from posttrain.provenance.ledger import Ledger
from posttrain.provenance.ledger.location import RECIPE_FILE, STATE_DIR
from posttrain.provenance.lineage.artifacts import object_folder
from posttrain.stage.errors import UserError
from posttrain.stage.files import nearest_existing
from posttrain.stage.formatting import bytesize

_LITTLE, _NEXT_TO_NOTHING = 2 * 10**9, 2 * 10**8
# An artifact is copied once, from the workspace into the cache.
_COPIES = 2
_FEW_FILES = 10_000
_REMEDY_OF_STATE = f"make room on the file system of {STATE_DIR}; the databases there may be whole"
_REMEDY = "posttrain gc --dry-run shows what can go; or move the cache: dvc cache dir --local"


def stages(_place: CheckScope) -> Iterator[Finding]:
    """Whether the kernel holds stages to what their keys know."""
    how = isolation(held=holds_here())
    if how == "held":
        yield Finding("stages", "ok", "held to what their keys know")
        return
    remedy = f"a kernel with Landlock ({SINCE}), and {ISOLATION} not set"
    yield Finding("stages", "warning", f"{how}: a read or a connection may go unnoticed", remedy)


def disk(place: CheckScope) -> Iterator[Finding]:
    """Room for artifacts and databases: for as much as the last run made, once more."""
    state = nearest_existing(place.state)
    seen: set[int] = set()
    if state.stat().st_dev != place.project.stat().st_dev:
        # Before anything reads a database there.
        yield replace(_room(STATE_DIR, state, 0, ""), remedy=_REMEDY_OF_STATE)
        seen.add(state.stat().st_dev)
    made, recipe = _last_made(place.project)
    folders = {
        "the project": place.project,
        "the cache": nearest_existing(object_folder(place.project)),
    }
    for what, folder in folders.items():
        device = folder.stat().st_dev
        if device in seen:
            continue
        seen.add(device)
        yield _room(what, folder, made, recipe)


def git(place: CheckScope) -> Iterator[Finding]:
    """Repository, commit, edits, identity."""
    if place.root is None or shutil.which("git") is None:
        return
    if ask_git(place.root, "rev-parse", "--git-dir") is None:
        yield Finding("git", "broken", f"{place.root} is in no git repository", "git init there")
        return
    commit = ask_git(place.root, "rev-parse", "--short", "HEAD")
    if not commit:
        remedy = "git add -A && git commit; schedules and releases are of a commit"
        yield Finding("git", "warning", "there is no commit yet", remedy)
        return
    edits = (
        ask_git(place.root, "status", "--porcelain", "--untracked-files=no") or ""
    ).splitlines()
    missing = [n for n in ("user.name", "user.email") if not ask_git(place.root, "config", n)]
    if missing:
        remedy = f"git config {missing[0]} '...'; releases and scheduled runs commit"
        yield Finding("git", "warning", f"{' and '.join(missing)} not set", remedy)
    elif edits:
        says = f"{commit}, and edits in {len(edits)} files, which scheduled runs leave out"
        yield Finding("git", "ok", says)
    else:
        yield Finding("git", "ok", f"{commit}, no edits")


def _room(what: str, folder: Path, made: int, recipe: str) -> Finding:
    status = os.statvfs(folder)
    free = status.f_bavail * status.f_frsize
    says = f"{bytesize(free)} free where {what} is"
    if made:
        says += f"; the last whole run of {recipe} made {bytesize(made)}, kept {_COPIES} times"
    if status.f_files and status.f_favail < _FEW_FILES:
        says = f"room for {status.f_favail:,} more files only where {what} is"
        return Finding("disk", "broken" if status.f_favail == 0 else "warning", says, _REMEDY)
    if free < _NEXT_TO_NOTHING:
        return Finding("disk", "broken", says, _REMEDY)
    if free < max(_LITTLE, _COPIES * made):
        return Finding("disk", "warning", says, _REMEDY)
    return Finding("disk", "ok", says)


def _last_made(root: Path) -> tuple[int, str]:
    """Bytes of what the stages of the last run stand for, reused ones included, and its recipe."""
    with ledger_as_it_is(root) as ledger:
        return _sizes(ledger) if ledger else (0, "")


def _sizes(ledger: Ledger) -> tuple[int, str]:
    for run in ledger.runs(limit=20):
        if run.status == "succeeded":
            outputs = [out for each in ledger.stage_runs(run.id) for out in each.outputs]
            return sum({out.digest: out.size for out in outputs}.values()), run.recipe
    return 0, ""


def programs(place: CheckScope) -> Iterator[Finding]:
    """Every program that the recipe needs is there, and a sandbox starts where it needs one."""
    if not (place.project / RECIPE_FILE).is_file():
        return
    try:
        recipe = load_recipe(place.project)
        dag = recipe.resolve(place.project)
    except UserError:  # what is wrong with a recipe, plan and run say
        return
    needed = programs_of(dag)
    absent = [*absent_packages(dag, recipe.run.device), *absent_programs(needed)]
    for what, line in absent:
        yield Finding("programs", "warning", what, line)
    if not needed or absent:
        return
    if "bwrap" in needed and (said := _sandbox_refused()):
        yield Finding("programs", "warning", said, "see there; then posttrain doctor again")
        return
    yield Finding("programs", "ok", f"with {', '.join(needed)}")


def _sandbox_refused() -> str:
    """Why no sandbox starts here; empty where one does."""
    try:
        box = Sandbox()
        try:
            box.wait()
        finally:
            box.close()
    except UserError as error:
        return str(error)
    return ""
