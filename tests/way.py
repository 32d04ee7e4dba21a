"""Follow a value through a program: the first-party files that have it in hand."""

import dataclasses
import sys
import threading
from pathlib import Path

from pydantic import BaseModel

ROOT = Path(__file__).parents[1]
OURS = ("posttrain", "tasks", "flows")


def in_hand(value, mark, *, records=1):
    """True where a value is the mark, or holds it by way of at most so many records.

    A number is the mark with either sign. Lists, sets and mappings hold at any depth, tensors by
    their numbers. A record is a dataclass, a model of pydantic or a named tuple.
    """
    torch = sys.modules.get("torch")
    if isinstance(value, float | str):
        return type(value) is type(mark) and (value == mark or _opposite(value, mark))
    if torch is not None and isinstance(value, torch.Tensor):
        return (
            isinstance(mark, float)
            and value.is_floating_point()
            and bool((value.detach().abs() == abs(mark)).any())
        )
    if isinstance(value, dict):
        inner, record = [*value.keys(), *value.values()], False
    elif isinstance(value, list | tuple | set | frozenset):
        inner, record = list(value), hasattr(value, "_fields")
    elif isinstance(value, BaseModel):
        inner, record = list(value.__dict__.values()), True
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        inner, record = [getattr(value, name, None) for name in names], True
    else:
        return False
    left = records - record
    return left >= 0 and any(in_hand(each, mark, records=left) for each in inner)


def _opposite(value, mark):
    return isinstance(mark, float) and value == -mark


class Way:
    """The first-party files that have a value in hand until a function returns.

    A file is on the way where a frame of its code has the value in hand: in an argument, a local
    variable or the result. Looked at are every call and every return of first-party code in this
    thread and those that it starts, and at a call its caller too. What only passes the value on
    counts like what computes with it.

    Args:
        mark: The value, a float or a text that nothing else comes to.
        start: Qualified name of the function at whose first return the way begins; None for the
            very beginning.
        end: That of the function at whose return it ends, the first that comes after the value was
            met.
        records: How many records deep the value counts as in hand.

    """

    def __init__(self, mark, *, start=None, end, records=1):
        self.mark, self.start, self.end, self.records = mark, start, end, records
        self.files, self.ended = [], False

    def __call__(self, frame, event, result):
        if self.ended or event not in ("call", "return") or file_of(frame) is None:
            return
        if self.start is None:
            self.look(frame, result if event == "return" else None)
            if event == "call" and frame.f_back is not None:
                self.look(frame.f_back)
        if event == "return":
            name = frame.f_code.co_qualname
            self.start = None if name == self.start else self.start
            self.ended = name == self.end and bool(self.files)

    def look(self, frame, result=None):
        file = file_of(frame)
        if file is None or file in self.files:
            return
        if in_hand([*frame.f_locals.values(), result], self.mark, records=self.records):
            self.files.append(file)

    def __enter__(self):
        threading.setprofile(self)
        sys.setprofile(self)
        return self

    def __exit__(self, *_):
        sys.setprofile(None)
        threading.setprofile(None)

    def __str__(self):
        return "\n".join([f"{len(self.files)} files:", *self.files])


def file_of(frame):
    """Path of a frame's file below the root, if it is ours."""
    file = frame.f_code.co_filename
    if not file.startswith(f"{ROOT}/"):
        return None
    found = file[len(str(ROOT)) + 1 :]
    return found if found.split("/")[0] in OURS else None
