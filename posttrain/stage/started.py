"""A part at work: what it starts for a run is checked, and an error is traced back to it."""

import traceback
import weakref
from pathlib import Path
from typing import Any, TypeVar

from posttrain.stage.errors import UserError, shown
from posttrain.stage.part_checks import complaint_about_started
from posttrain.stage.slots import Part, name_of

T = TypeVar("T")

# The part that started an object, by the object's number while it lives. It is not written into
# the object, whose attributes may be its state.
_makers: dict[int, tuple[weakref.ref[object], Part]] = {}


def started(part: Part, made: T, base: type[Any], *, where: str) -> T:
    """Check what the `start` of a part gave, and remember whose it is.

    Args:
        part: The part.
        made: What its `start` returned.
        base: The class that it must derive from; what is abstract there is left to it.
        where: Name of the stage, for errors.

    Returns:
        The same object.

    Raises:
        UserError: It does not derive from `base`, lacks a method, or has one that takes other
            arguments.

    """
    if complaint := complaint_about_started(made, base):
        raise UserError(f"{where}: {name_of(part)}: `start` gave {complaint}")
    _makers[id(made)] = (weakref.ref(made), part)
    return made


def traced(error: BaseException) -> str:
    """Say what an error is and, where a part raised it, which part and in which line.

    Args:
        error: What was caught, with its traceback.

    Returns:
        `TypeName: message`, or `slot.kind raised TypeName: message (file:line)` with the innermost
        line of the part's own file. The part is the one whose method, or whose started object's
        method, is innermost.

    """
    return traced_to_part(error) or f"{type(error).__name__}: {error}"


def traced_to_part(error: BaseException) -> str | None:
    """Say which part raised an error, and in which line, as `traced` does.

    Args:
        error: What was caught, with its traceback.

    Returns:
        `slot.kind raised TypeName: message (file:line)`; None where no part did.

    """
    said = f"{type(error).__name__}: {error}"
    frames = [
        (frame.f_locals.get("self"), frame.f_code.co_filename, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    for place in reversed(range(len(frames))):
        owner, file, _ = frames[place]
        if (part := _part_behind(owner)) is not None:
            line = [line for _, other, line in frames[place:] if other == file][-1]
            return f"{name_of(part)} raised {said} ({shown(Path(file))}:{line})"
    return None


def _part_behind(owner: object) -> Part | None:
    if isinstance(owner, Part):
        return owner
    reference, part = _makers.get(id(owner), (None, None))
    # Numbers are given anew, once an object is gone.
    return part if reference is not None and reference() is owner else None
