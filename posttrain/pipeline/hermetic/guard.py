"""What Python itself can see of a stage's reads: listings, and where there is no Landlock, opens.

An audit hook (PEP 578) hears what Python's own functions do. What a library does in C++ or Rust,
and other programs, it does not hear: Landlock holds those.
"""

import errno
import os
import socket
import sys
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from types import FrameType
from typing import Any

from posttrain.pipeline.hermetic.view import Grants, StageView
from posttrain.stage.declared import how_to_declare
from posttrain.stage.errors import UserError

_LISTINGS = frozenset({"os.listdir", "os.scandir"})
_CHANGES: Mapping[str, tuple[int, ...]] = {
    "os.mkdir": (0,),
    "os.remove": (0,),
    "os.rmdir": (0,),
    "os.rename": (0, 1),
    "os.link": (1,),
    "os.symlink": (1,),
    "os.truncate": (0,),
}
"""Events of changes, and which of their arguments are the places."""
_KEPT = 64
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_ENVIRONMENT = frozenset({"os", "collections"})
_STANDARD = sys.stdlib_module_names
"""They look into folders and open files for whoever calls them."""
_INTERNET = (socket.AF_INET, socket.AF_INET6)


@dataclass
class Guard:
    """Hears what a stage does in Python, and refuses what is not held already.

    Args:
        view: What the stage may do.
        grants: The places that it may reach.
        holds: False where Landlock holds files: then only listings are refused here.
        holds_tcp: The same of connections.

    """

    view: StageView
    grants: Grants
    holds: bool
    holds_tcp: bool
    written: deque[str] = field(default_factory=lambda: deque(maxlen=_KEPT))
    """Places that were to be changed, the last ones."""
    asked: str = ""
    """The machine that a name was last looked up of, or that a connection was last made to."""
    unread: dict[str, str] = field(default_factory=dict)
    """What the project's code was refused, with the program that was to read it, or nothing."""
    refused: list[str] = field(default_factory=list)
    """Sentences about variables and connections that the project's code was refused."""

    def __post_init__(self) -> None:
        self._folders: dict[str, bool] = {}
        self._files: set[str] = set()
        self.code = frozenset(os.path.realpath(file) for file in self.view.code)
        self._hearing: dict[str, Callable[[tuple[Any, ...]], None]] = {
            "open": self._opens,
            "socket.getaddrinfo": self._looks_up,
            "socket.connect": self._connects,
            "subprocess.Popen": self._starts,
            "os.system": self._starts,
            **dict.fromkeys(_LISTINGS, self._lists),
        }
        for event, places in _CHANGES.items():
            self._hearing[event] = partial(self._changes, places)

    def install(self) -> None:
        """Begin to hear; there is no way to end it but the end of the process."""
        hearing = self._hearing

        def hook(event: str, given: tuple[Any, ...]) -> None:
            hear = hearing.get(event)
            if hear is not None:
                hear(given)

        sys.addaudithook(hook)

    def _opens(self, given: tuple[Any, ...]) -> None:
        path, _, flags = given
        place = _as_text(path)
        if place is None:
            return
        if isinstance(flags, int) and flags & _WRITES:
            self.written.append(place)
            if self.holds and not self.grants.writes(place):
                raise _refused(place)
            return
        if not self.holds and (place in self._files or self._is_open(os.path.dirname(place))):  # noqa: PTH120
            return
        ours = asked_by(self.code, sys._getframe(2), through=_STANDARD)
        if not (ours or self.holds) or not os.path.exists(place):  # noqa: PTH110
            return
        if self.grants.reads(place):
            # Some are opened in every step, and links are looked up at each look.
            if not self.holds and os.path.isabs(place):  # noqa: PTH117
                self._files.add(place)
            return
        if ours:
            self._note(place)
        if self.holds:
            raise _refused(place)

    def _is_open(self, folder: str) -> bool:
        """Return whether all that lies in a folder may be read; most opens are in a few folders."""
        if folder not in self._folders:
            self._folders[folder] = os.path.isabs(folder) and self.grants.reads(folder)  # noqa: PTH117
        return self._folders[folder]

    def _lists(self, given: tuple[Any, ...]) -> None:
        """Refuse a listing that no import makes: what a folder holds is content, too."""
        place = _as_text(given[0] if given and given[0] is not None else ".")
        if place is None or _imports(sys._getframe(2)):
            return
        if os.path.isdir(place) and not self.grants.reads(place):  # noqa: PTH112
            if asked_by(self.code, sys._getframe(2), through=_STANDARD):
                self._note(place)
            raise _refused(place)

    def _starts(self, given: tuple[Any, ...]) -> None:
        """Note files that a program is given and cannot read: how it ends may be of no interest."""
        if self.holds or not asked_by(self.code, sys._getframe(2), through=_STANDARD):
            return
        command = given[1] if len(given) > 1 else given[0]
        parts = [command] if isinstance(command, str | bytes | os.PathLike) else list(command)
        words = [word for part in parts for word in os.fsdecode(part).split()]
        for word in words:
            if os.path.isfile(word) and not self.grants.reads(word):  # noqa: PTH113
                self._note(word, by=os.path.basename(words[0]))  # noqa: PTH119

    def _note(self, place: str, by: str = "") -> None:
        self.unread[os.path.abspath(place)] = by  # noqa: PTH100 - links stay as they are written

    def _changes(self, places: tuple[int, ...], given: tuple[Any, ...]) -> None:
        for at in places:
            place = _as_text(given[at])
            if place is not None:
                self.written.append(place)
                if self.holds and not self.grants.writes(place):
                    raise _refused(place)

    def _looks_up(self, given: tuple[Any, ...]) -> None:
        self.asked = f"{_as_text(given[0]) or given[0]}:{given[1]}"

    def _connects(self, given: tuple[Any, ...]) -> None:
        connection, address = given
        if connection.family not in _INTERNET or connection.type != socket.SOCK_STREAM:
            return
        if not self.asked:
            self.asked = f"{address[0]}:{address[1]}"
        if self.view.connects:
            return
        if asked_by(self.code, sys._getframe(2), through=_STANDARD):
            self.refused.append(self.about_connection())
        if self.holds_tcp:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    def about_connection(self) -> str:
        """Say that a connection was refused, with the machine where it is known."""
        place = f" to {self.asked}" if self.asked else ""
        return (
            f"stage '{self.view.stage}' opens a connection{place}, and none of its parameters names"
            " an endpoint or a hub; name one there, or let its config say so by `reaches`"
        )


def _refused(place: str) -> PermissionError:
    return PermissionError(errno.EACCES, os.strerror(errno.EACCES), place)


def _as_text(path: object) -> str | None:
    """A path as text; None of a file that is open already."""
    return os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else None


@cache
def _real(file: str) -> str:
    return os.path.realpath(file)


def head_of(frame: FrameType) -> str:
    """Top-level name of the module whose code runs in a frame."""
    return str(frame.f_globals.get("__name__")).partition(".")[0]


def _imports(frame: FrameType | None) -> bool:
    """Whether a listing is made by Python's own search for modules or for packages' versions."""
    return frame is not None and head_of(frame) in ("importlib", "importlib_metadata")


class DeclaredVariables:
    """Refuses the project's code a variable that is set and not declared.

    To libraries it is as if the variable were not set: what they ask for out of habit is no matter.
    """

    def __init__(self, guard: Guard, withheld: frozenset[str]) -> None:
        self._guard = guard
        self._withheld = withheld

    def install(self) -> None:
        """Begin to watch what is asked of `os.environ`."""
        guard, withheld = self._guard, self._withheld
        stage = guard.view.stage

        class WatchedEnvironment(type(os.environ)):  # type: ignore[misc]
            """`os.environ`, which tells what it was asked for in vain."""

            def __getitem__(self, name: str) -> str:
                set_since = self.encodekey(name) in self._data
                if name in withheld and not set_since and asked_by(guard.code, sys._getframe(1)):
                    declare = how_to_declare(stage, "environment", name)
                    said = (
                        f"stage '{stage}' reads the environment variable {name}, which its key"
                        f" does not know; {declare}, or as one of its secrets where it decides"
                        " nothing about the result"
                    )
                    guard.refused.append(said)
                    raise UserError(said)
                return str(super().__getitem__(name))

        os.environ.__class__ = WatchedEnvironment


def asked_by(
    code: frozenset[str], frame: FrameType | None, through: frozenset[str] = _ENVIRONMENT
) -> bool:
    """Whether one of these files asks, by itself or through functions of some modules.

    Args:
        code: Files, all links followed.
        frame: The innermost one that counts.
        through: Top-level names of modules that ask for whoever calls them.

    """
    while frame is not None and head_of(frame) in through:
        frame = frame.f_back
    return frame is not None and _real(frame.f_code.co_filename) in code
