"""Follow a value through a program: the first-party files whose functions hold it."""

import dataclasses
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

from pydantic import BaseModel

ROOT = Path(__file__).parents[1]
OURS = tuple(f"{ROOT / package}/" for package in ("posttrain", "tasks", "flows"))


def holds(value, wanted, depth):
    """Whether a value is wanted, or an element or field of it is, at most `depth` steps in."""
    if wanted(value):
        return True
    if not depth:
        return False
    if isinstance(value, dict):
        inner = [*value.keys(), *value.values()]
    elif isinstance(value, list | tuple | set | frozenset):
        inner = list(value)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        inner = [getattr(value, field.name, None) for field in dataclasses.fields(value)]
    elif isinstance(value, BaseModel):
        inner = list(value.__dict__.values())
    else:
        return False
    return any(holds(each, wanted, depth - 1) for each in inner)


@contextmanager
def files_that_hold(wanted, *, depth, until):
    """Collect the first-party files, with their functions, through which a value goes.

    A function counts when the value is one of its arguments or local variables, or what it
    returns, or an element or field of one of these at most `depth` steps in (a field of an element
    of a list is two). Looked at are a function and its caller at every call, and a function as it
    returns, in this thread and in those that it starts. `self` does not count: an object that
    keeps what passes would hold everything for ever.

    Args:
        wanted: Recognizes the value.
        depth: Steps into containers and objects.
        until: Qualified name of the function at whose return, with the value in it, the watch ends.

    Yields:
        Path relative to the project -> names of functions, filled while the context is open.

    """
    found, ended = {}, threading.Event()

    def look(frame, values):
        values = [*values, *(each for name, each in frame.f_locals.items() if name != "self")]
        if not any(holds(each, wanted, depth) for each in values):
            return False
        file = str(Path(frame.f_code.co_filename).relative_to(ROOT))
        found.setdefault(file, set()).add(frame.f_code.co_qualname)
        return True

    def profile(frame, event, argument):
        if ended.is_set() or event not in ("call", "return"):
            return
        if not frame.f_code.co_filename.startswith(OURS):
            return
        if event == "call":
            look(frame, [])
            if frame.f_back is not None and frame.f_back.f_code.co_filename.startswith(OURS):
                look(frame.f_back, [])
        elif look(frame, [argument]) and frame.f_code.co_qualname == until:
            ended.set()

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        yield found
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    assert ended.is_set(), f"{until} never returned with the value"
