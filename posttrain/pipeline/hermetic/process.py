"""Hold the present process to its view, for good."""

import contextlib
import locale
import os
import sys
import tempfile
import time
from dataclasses import replace
from functools import partial
from multiprocessing import current_process
from pathlib import Path

from posttrain.backends.endpoint.cache import RequestCache, default_path
from posttrain.pipeline.hermetic import landlock
from posttrain.pipeline.hermetic.environment import FIXED, passed, withhold
from posttrain.pipeline.hermetic.guard import DeclaredVariables, Guard
from posttrain.pipeline.hermetic.imports import KeyedImports
from posttrain.pipeline.hermetic.refusal import explain, explain_unread
from posttrain.pipeline.hermetic.system import CACHES, caches
from posttrain.pipeline.hermetic.view import Grants, StageView
from posttrain.stage.declared import read_from
from posttrain.stage.errors import UserError
from posttrain.stage.needs import ANSWERED, LEAVES, SEVERAL
from posttrain.stage.rules import Heard, hand_on

ISOLATION = "POSTTRAIN_ISOLATION"
"""Environment variable: `observed` does without Landlock, as on a kernel that has none."""

# For as long as the process lasts: the last one to close the database would remove files of it.
_opened: list[RequestCache] = []


def holds_here() -> bool:
    """Return whether this kernel holds stages to their views, or they can only be observed.

    Raises:
        UserError: `POSTTRAIN_ISOLATION` has a value that is not known.

    """
    asked = os.environ.get(ISOLATION, "")
    if asked not in ("", "observed"):
        raise UserError(
            f"{ISOLATION} is '{asked}', and only observed is known; set it to that, or not at all"
            " to have stages held"
        )
    return not asked and landlock.abi() > 0


def isolation(*, held: bool) -> str:
    """Say how stages are kept to their views here.

    Args:
        held: As by `holds_here`.

    Returns:
        `held`; `held, TCP observed` on kernels before Linux 6.7; or `observed`.

    """
    if not held:
        return "observed"
    return "held" if landlock.abi() >= landlock.TCP_SINCE else "held, TCP observed"


def hold(view: StageView) -> Guard:
    """Give up all that a stage has not declared, in this thread and all that it begins.

    Args:
        view: What the stage may reach.

    Returns:
        What explains refusals, and hears what is not held.

    """
    kept = _keep_caches(view.reach)
    if view.reach & SEVERAL:
        # Its sockets are files, whose paths may be 107 bytes long.
        view = replace(view, temporary=Path(tempfile.mkdtemp(prefix="")))
        kept += [place for place in (view.temporary,) if place is not None]
    withheld = _set_environment(view)
    # What Python compiles it writes beside the source, which is none of the stage's to change.
    sys.dont_write_bytecode = True
    grants = Grants.of(view, kept)
    if view.held:
        landlock.restrict(grants.rules, tcp=view.connects)
    guard = _hear(view, grants)
    DeclaredVariables(guard, withheld).install()
    return guard


def listen(view: StageView) -> Guard:
    """Hear what is refused in a process that was started by one that is restricted.

    Args:
        view: What the stage may reach.

    Returns:
        As `hold` does.

    """
    sys.dont_write_bytecode = True
    return _hear(view, Grants.of(view, caches(view.reach).values()))


def keep_rules(view: StageView) -> Heard:
    """Make this process, which works for a stage, keep the rules of that; see `hand_on`.

    Args:
        view: What the stage may reach.

    Returns:
        What says which of them was broken.

    """
    return partial(_said, listen(view))


def _said(guard: Guard, error: Exception | None) -> str | None:
    return explain_unread(guard) if error is None else explain(error, guard)


def _hear(view: StageView, grants: Grants) -> Guard:
    tcp_is_held = isolation(held=view.held) == "held"
    guard = Guard(view, grants, holds=not view.held, holds_tcp=not tcp_is_held)
    guard.install()
    KeyedImports(guard).install()
    read_from(view.folder)
    # Values of variables, which may be secrets, go nowhere: another process of here has them.
    hand_on(partial(keep_rules, replace(view, environment={})))
    return guard


def _keep_caches(reach: frozenset[str]) -> list[Path]:
    """Make the caches while they can be made, and name those that lie among temporary files."""
    found = caches(reach)
    for kind, folder in found.items():
        variable, usual, _ = CACHES[kind]
        if "{home}" not in usual:
            with contextlib.suppress(OSError):
                folder.mkdir(parents=True, exist_ok=True)
        if variable and "{tmp}" in usual:
            # A stage has temporary files of its own, which go with it.
            os.environ.setdefault(variable, str(folder))
    return [*found.values(), *(_request_cache() if reach & ANSWERED else [])]


def _request_cache() -> list[Path]:
    """Open the cache of requests: beside its database new files may not be made later on."""
    path = default_path()
    with contextlib.suppress(UserError):  # the stage itself says what is wrong with it
        _opened.append(RequestCache(path))
    return [path, *(path.with_name(path.name + end) for end in ("-wal", "-shm"))]


def _set_environment(view: StageView) -> frozenset[str]:
    """Take away what is not declared; returns the names."""
    declared = view.environment
    seen = passed(os.environ, declared, networked=bool(view.reach & LEAVES))
    withheld = frozenset(os.environ.keys() - seen.keys())
    withhold(withheld)
    os.environ.update({**FIXED, **declared})
    time.tzset()
    with contextlib.suppress(locale.Error):  # of a system without it
        locale.setlocale(locale.LC_CTYPE, "")
    if view.temporary is not None:
        view.temporary.mkdir(parents=True, exist_ok=True)
        os.environ["TMPDIR"] = tempfile.tempdir = str(view.temporary)
        # Where listeners have their sockets: what it inherited is the executor's.
        vars(current_process())["_config"].pop("tempdir", None)
    return withheld - declared.keys() - FIXED.keys()
