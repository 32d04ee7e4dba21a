"""One sentence about what a stage was refused: which file, and how to declare it."""

import errno
import itertools
import os
import re
import subprocess
from collections.abc import Iterator

from posttrain.pipeline.hermetic.guard import Guard
from posttrain.stage.declared import how_to_declare

_REFUSED = (errno.EACCES, errno.EPERM, errno.EXDEV)
# Rust says "Permission denied (os error 13)", C libraries and programs "Permission denied".
_SAID = re.compile(r"permission denied|operation not permitted|os error (?:13|1|18)\b", re.I)
_LONGEST = 120


def explain(error: BaseException, guard: Guard) -> str | None:
    """Say what an undeclared read, change or connection was, where an error came of one.

    Args:
        error: As raised by the stage; what it was raised from is looked at, too.
        guard: What was held, and what Python did last.

    Returns:
        The sentence; None where the error has another reason, such as the rights of a file.

    """
    chain = list(_chain(error))
    for each in chain:
        for place in _places(each, guard):
            return _about_file(place, each, guard)
    if any(_is_of_connection(each) for each in chain) and not guard.view.connects:
        return guard.about_connection()
    for each in chain:
        if not isinstance(each, OSError) and _SAID.search(str(each)):
            return (
                f"stage '{guard.view.stage}' was refused a file or a connection that its key does"
                f" not know, and the library that tried does not say which ({_short(str(each))});"
                " the stage's log shows where; make the file an input, or"
                f" {how_to_declare(guard.view.stage, 'reads', 'path')}"
            )
    return None


def explain_unread(guard: Guard) -> str | None:
    """Say what a stage went on without: its code caught the refusal, or never looked at it.

    Args:
        guard: What was heard.

    Returns:
        The sentence; None where nothing was refused.

    """
    unread = (
        _about_read(place, f"lets {program} read" if program else "reads", guard)
        for place, program in guard.unread.items()
    )
    said = next(itertools.chain(unread, guard.refused), None)
    return said and f"{said} (it was refused, and the stage went on without it)"


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    pending = [error]
    while pending:
        each = pending.pop(0)
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        pending += [inner for inner in (each.__cause__, each.__context__) if inner is not None]


def _places(error: BaseException, guard: Guard) -> Iterator[str]:
    """The places that an error names and that are not the stage's: the likeliest first."""
    named: list[str] = []
    if isinstance(error, OSError) and error.errno in _REFUSED:
        named += [
            os.fsdecode(name)
            for name in (error.filename2, error.filename)
            if isinstance(name, str | bytes)
        ]
    if isinstance(error, subprocess.CalledProcessError):
        named += _given_to_program(error)
    elif _SAID.search(str(error)):
        named += _in_text(str(error))
    for place in named:
        changed = place in guard.written or _is_new(place)
        within = guard.grants.writes(place) if changed else guard.grants.reads(place)
        if not within:
            yield place


def _is_new(place: str) -> bool:
    """True where there is nothing yet, in a folder that there is: only a change can be meant."""
    absolute = os.path.abspath(place)  # noqa: PTH100 - links stay as they are written
    folder = os.path.dirname(absolute)  # noqa: PTH120
    return not os.path.lexists(absolute) and os.path.isdir(folder)  # noqa: PTH112


def _given_to_program(error: subprocess.CalledProcessError) -> list[str]:
    """Files that a program was given which failed; what it says itself goes first."""
    said = "".join(
        text.decode(errors="replace") if isinstance(text, bytes) else text or ""
        for text in (error.stderr, error.output)
    )
    command = error.cmd if isinstance(error.cmd, list | tuple) else str(error.cmd).split()
    given = [os.fsdecode(word) for word in command if isinstance(word, str | bytes | os.PathLike)]
    found = _in_text(said) if _SAID.search(said) else []
    return found + [word for word in given if os.path.isfile(word)]  # noqa: PTH113


def _in_text(text: str) -> list[str]:
    """Paths that a message names: in quotes, after a colon, or any word that is there."""
    quoted = re.findall(r"'([^'\n]+)'|\"([^\"\n]+)\"|`([^`\n]+)`", text)
    words = [part for found in quoted for part in found if part]
    words += [part.strip() for line in text.splitlines() for part in re.split(r":\s|\s\(|$", line)]
    words += text.split()
    cleaned = (word.strip("'\"`,;()[]") for word in words)
    paths = dict.fromkeys(word for word in cleaned if word and not word.isdigit())
    there = [path for path in paths if os.path.lexists(path) or (path[0] == "/" and _is_new(path))]
    # Rust's libraries put the path last, also that of a file which is yet to be made.
    last = [found.strip() for found in re.findall(r"\(os error \d+\): (.+)$", text, re.MULTILINE)]
    return there + [path for path in last if _is_new(path)]


def _is_of_connection(error: BaseException) -> bool:
    """A refusal that names no file: connections and ports are refused so."""
    if isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EPERM):
        return error.filename is None
    return False


def _about_file(place: str, error: BaseException, guard: Guard) -> str:
    if place in guard.written or _is_new(place):
        return (
            f"stage '{guard.view.stage}' writes {_shown(place, guard)}, and nothing outside of its"
            " outputs and `context.scratch` is its to change; write it there, or make it an output"
            " of its task"
        )
    by = "reads"
    if isinstance(error, subprocess.CalledProcessError):
        command = error.cmd if isinstance(error.cmd, list | tuple) else str(error.cmd).split()
        by = f"lets {os.path.basename(os.fsdecode(command[0]))} read"  # noqa: PTH119
    return _about_read(place, by, guard)


def _about_read(place: str, by: str, guard: Guard) -> str:
    view, absolute, shown = guard.view, os.path.realpath(place), _shown(place, guard)
    declare = how_to_declare(view.stage, "reads", shown)
    if absolute.endswith(".py"):
        return (
            f"stage '{view.stage}' {by} {shown}, code that its key was not seen to reach; import it"
            f" by its name, or {declare}"
        )
    return (
        f"stage '{view.stage}' {by} {shown}, which its key does not know; make it an input of the"
        f" stage, or {declare}"
    )


def _shown(place: str, guard: Guard) -> str:
    """A place of the project as the recipe would spell it."""
    absolute, root = os.path.realpath(place), os.path.realpath(guard.view.root)
    inside = absolute.startswith(f"{root}/")
    return os.path.relpath(absolute, os.path.realpath(guard.view.folder)) if inside else absolute


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."
