"""`posttrain sandbox run FILE`: one program, where it can reach and leave nothing."""

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from posttrain.cli.options import DocumentedGroup
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from posttrain.backends.sandbox.program import ProgramEnd

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@click.group(cls=DocumentedGroup)
def sandbox() -> None:
    """Run what nobody has read, as the verifiers of code do."""


@sandbox.command("run", short_help="Run one program: its output, and how it ended.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--stdin", "given", type=click.Path(path_type=Path), help="File that it reads.")
@click.option(
    "--seconds",
    type=float,
    default=10.0,
    show_default=True,
    help="Time after which it is stopped, by the clock and of processors.",
)
@click.option(
    "--memory",
    type=int,
    default=512,
    show_default=True,
    help="MiB of memory, files that it writes among it, at which it is stopped.",
)
def run_program(file: Path, given: Path | None, seconds: float, memory: int) -> None:
    r"""Run FILE in a sandbox of bubblewrap: no network, nothing to write but 64 MiB in /tmp.

    What FILE is its name says: .py Python, .sh shell, .sql SQLite (the rows of the last statement,
    on an empty database), .v and .sv Verilog (Icarus). It sees this machine's programs and the
    packages of this Python, no environment and none of your files, and at most 32 processes.

    Its output goes to the standard output, its errors to the standard error, and then one line
    there says how it ended. Where the output is a terminal, control characters are shown as
    \x1b and the like.

    Exits with 0 if the program ended by itself with exit code 0, and with 1 if it failed or was
    stopped.

    Examples:
      posttrain sandbox run answer.py
      posttrain sandbox run answer.py --stdin case-1.txt --seconds 2 --memory 256
      posttrain sandbox run query.sql

    """
    from posttrain.backends.sandbox.launch import Sandbox
    from posttrain.backends.sandbox.program import (
        MAX_MEMORY,
        MAX_SECONDS,
        MIB,
        MIN_MEMORY,
        Program,
        ProgramLimits,
        language_of,
    )

    source = _read(file)
    language = language_of(file)
    if not 0 < seconds <= MAX_SECONDS:
        raise UserError(f"--seconds must be above 0, at most {MAX_SECONDS:g}, not {seconds:g}")
    least, most = MIN_MEMORY // MIB, MAX_MEMORY // MIB
    if not least <= memory <= most:
        raise UserError(f"--memory must be {least} to {most} MiB, not {memory}")
    limits = ProgramLimits(seconds=seconds, cpu_seconds=seconds, memory_bytes=memory * MIB)
    stdin = _read(given) if given is not None else b""
    program = Program.of(language, source, stdin=stdin, limits=limits)
    end = Sandbox().run(program)
    _show(end)
    click.echo(f"{file.name} {end.sentence(limits)}", err=True)
    if not end.ok:
        sys.exit(1)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; name a file") from None


def _show(end: "ProgramEnd") -> None:
    _write(end.stdout, sys.stdout)
    _write(end.stderr, sys.stderr)


def _write(data: bytes, stream: TextIO) -> None:
    if stream.isatty():
        text = data.decode("utf-8", "replace")
        stream.write(_CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text))
        stream.flush()
        return
    stream.flush()
    stream.buffer.write(data)
