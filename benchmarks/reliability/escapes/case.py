"""What one attempt to escape is."""

from collections.abc import Mapping
from dataclasses import dataclass
from textwrap import dedent


@dataclass(frozen=True)
class Escape:
    """A program that prints `ESCAPED` where it achieves what it must not.

    Attributes:
        name: What it tries, in a word or two.
        source: Its text; `{canary}` and other names stand for facts of the machine.
        language: What runs it.
        ends: How it may end; any way where this is empty.
        seconds: Time that it is given.
        outside: True where it succeeds, and does no harm, without a sandbox.

    """

    name: str
    source: str
    language: str = "python"
    ends: frozenset[str] = frozenset()
    seconds: float = 5.0
    outside: bool = False

    def told(self, facts: Mapping[str, object]) -> str:
        """Its text, with the facts of a machine in it."""
        text = dedent(self.source)
        for name, value in facts.items():
            text = text.replace("{" + name + "}", str(value))
        return text


CALL = '''
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def tried(done, what="it"):
    """A call that did not fail."""
    if done != -1:
        print("ESCAPED", what, done)
'''
"""What programs that call the C library begin with."""


def reading(name: str, path: str, *, outside: bool = False) -> Escape:
    """A program that reads a file by an expression for its path."""
    return Escape(name, f"import os\nprint('ESCAPED', open({path}).read(40))\n", outside=outside)


def calling(name: str, body: str, *, ends: str = "exit") -> Escape:
    """A program that makes calls of the C library that must fail."""
    return Escape(name, CALL + dedent(body), ends=frozenset({ends}))
