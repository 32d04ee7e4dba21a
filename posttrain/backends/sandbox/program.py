"""What is run in a sandbox, within which limits, and how it ended."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from posttrain.stage.errors import UserError

How = Literal["exit", "signal", "time", "cpu", "memory", "processes", "files", "output", "lost"]

MIB = 1 << 20
DISK_BYTES = 64 * MIB
"""What a program may write below `/tmp`, the only place where it can write; it counts as memory."""
MAX_SECONDS = 3600.0
MAX_MEMORY = 1 << 40
MIN_MEMORY = 16 * MIB


@dataclass(frozen=True)
class ProgramLimits:
    """What one program may use; all its processes count together, unless it is said otherwise.

    Attributes:
        seconds: Time by the clock.
        cpu_seconds: Time of processors.
        memory_bytes: Memory, with the files that it wrote; also the addresses of each process.
        processes: Processes and threads at once.
        file_bytes: Size of one file.
        open_files: Open files of each process.
        output_bytes: What is read of its output, and as much again of its errors.
        files: Files, folders and links that it may make.

    """

    seconds: float = 10.0
    cpu_seconds: float = 10.0
    memory_bytes: int = 512 * MIB
    processes: int = 32
    file_bytes: int = 32 * MIB
    open_files: int = 128
    output_bytes: int = MIB
    files: int = 4096

    def __post_init__(self) -> None:
        if not 0 < self.seconds <= MAX_SECONDS or not self.cpu_seconds > 0:
            raise UserError(
                f"seconds of a sandboxed program must be above 0, at most {MAX_SECONDS:g}"
            )
        if not MIN_MEMORY <= self.memory_bytes <= MAX_MEMORY:
            least, most = MIN_MEMORY // MIB, MAX_MEMORY // MIB
            raise UserError(f"memory of a sandboxed program must be {least} to {most} MiB")
        counts = (self.processes, self.file_bytes, self.open_files, self.output_bytes, self.files)
        if min(counts) < 1:
            raise UserError("the limits of a sandboxed program must be positive")


@dataclass(frozen=True)
class Program:
    """One thing to run, in a folder of its own that goes with it.

    Attributes:
        command: Program and arguments.
        files: Text or bytes by name, written into the folder before it starts.
        stdin: What it reads.
        limits: What it may use.

    """

    command: tuple[str, ...]
    files: Mapping[str, bytes] = field(default_factory=dict)
    stdin: bytes = b""
    limits: ProgramLimits = ProgramLimits()

    @classmethod
    def of(
        cls,
        language: str,
        source: str | bytes,
        *,
        stdin: str | bytes = b"",
        limits: ProgramLimits = ProgramLimits(),  # noqa: B008 - it is frozen
    ) -> "Program":
        """Make a program of source text.

        Args:
            language: One of `LANGUAGES`.
            source: Its text.
            stdin: What it reads.
            limits: What it may use.

        Raises:
            UserError: Nothing here runs the language.

        """
        if language not in LANGUAGES:
            raise UserError(f"the sandbox runs {', '.join(LANGUAGES)}, and not '{language}'")
        name, command = LANGUAGES[language]
        return cls(command(), {name: _bytes(source)}, _bytes(stdin), limits)

    def told(self) -> tuple[dict[str, Any], list[bytes]]:
        """Return it as the keeper of a sandbox reads it: a header, and blobs."""
        header = {
            "command": list(self.command),
            "files": list(self.files),
            "limits": asdict(self.limits),
        }
        return header, [*self.files.values(), self.stdin]


def _bytes(text: str | bytes) -> bytes:
    # What a model wrote may hold halves of characters.
    return text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text


LANGUAGES: Mapping[str, tuple[str, Callable[[], tuple[str, ...]]]] = {
    "python": ("main.py", lambda: (sys.executable, "main.py")),
    "shell": ("main.sh", lambda: ("/bin/sh", "main.sh")),
    "sql": ("main.sql", lambda: (sys.executable, "-c", _SQL, "main.sql")),
    "verilog": ("main.v", lambda: ("/bin/sh", "-c", _VERILOG, "sh", "main.v")),
}
"""Name of the file and command of each language; the interpreter is that of this process."""

SUFFIXES: Mapping[str, str] = {
    ".py": "python",
    ".sh": "shell",
    ".sql": "sql",
    ".v": "verilog",
    ".sv": "verilog",
}
"""Which language a file is of."""

_SQL = """\
import sqlite3, sys
link = sqlite3.connect(":memory:", isolation_level=None)
rows, statement = [], ""
for piece in open(sys.argv[1]).read().split(";"):
    statement += piece + ";"
    if sqlite3.complete_statement(statement):
        if statement.strip(" \\n;"):
            rows = link.execute(statement).fetchall()
        statement = ""
for row in rows:
    print(*("" if value is None else value for value in row), sep="|")
"""

_VERILOG = 'iverilog -g2012 -o compiled "$@" && exec vvp -n compiled'


@dataclass(frozen=True)
class ProgramEnd:
    """How a program ended, and what it wrote until then.

    Attributes:
        how: `exit` and `signal` where it ended by itself; `time`, `cpu`, `memory`, `processes`,
            `files`, `output`: stopped at that limit; `lost`: its sandbox ended under it.
        code: Exit code or number of the signal; None where it was stopped.
        stdout: Its output, cut at the limit.
        stderr: Its errors, cut likewise.
        seconds: From its start to its end.
        cpu_seconds: Time of processors that its processes took.
        memory_bytes: The most memory that was seen, looked at every 10 ms.
        processes: The most processes and threads that were seen at once.

    """

    how: How
    code: int | None
    stdout: bytes
    stderr: bytes
    seconds: float
    cpu_seconds: float = 0.0
    memory_bytes: int = 0
    processes: int = 0

    @property
    def ok(self) -> bool:
        """True where it ended by itself, with exit code 0."""
        return self.how == "exit" and self.code == 0

    @property
    def output(self) -> str:
        """Its output as text; what is no UTF-8 is replaced."""
        return self.stdout.decode("utf-8", "replace")

    @property
    def errors(self) -> str:
        """Its errors as text."""
        return self.stderr.decode("utf-8", "replace")

    def told(self) -> dict[str, Any]:
        """Return all but its output, as JSON can hold it."""
        return {
            name: value for name, value in asdict(self).items() if name not in ("stdout", "stderr")
        }

    def sentence(self, limits: ProgramLimits) -> str:
        """Say how it ended, for a person.

        Args:
            limits: What it was allowed.

        """
        stopped: Mapping[str, str] = {
            "exit": f"ended with exit code {self.code}",
            "signal": f"ended by signal {self.code}",
            "time": f"was stopped after {limits.seconds:g} s",
            "cpu": f"was stopped after {limits.cpu_seconds:g} s of processor time",
            "memory": f"was stopped at more than {limits.memory_bytes / MIB:g} MiB of memory",
            "processes": f"was stopped at more than {limits.processes} processes and threads",
            "files": f"was stopped at more than {limits.files} files",
            "output": f"was stopped at more than {limits.output_bytes} bytes of output",
            "lost": "ended its own sandbox, or the machine had no room for it",
        }
        used = f"{self.seconds:.2f} s, {self.memory_bytes / MIB:.0f} MiB, {self.processes} at once"
        return f"{stopped[self.how]} ({used})"


def language_of(path: Path) -> str:
    """Tell the language of a file by the end of its name.

    Raises:
        UserError: Nothing here runs it.

    """
    if path.suffix not in SUFFIXES:
        raise UserError(
            f"{path}: the sandbox runs files that end in {', '.join(SUFFIXES)}; rename it, if it is"
            " one of them"
        )
    return SUFFIXES[path.suffix]
