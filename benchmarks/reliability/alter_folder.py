"""Alterations of a release's folder, without the key."""

import os
import shutil
import socket
from collections.abc import Callable, Mapping

from benchmarks.reliability.altered import Case

NAMES = (
    "z\x1b[2K\x1b[1GFOLDER: every byte, claim, link and signature holds\x1b[8m",
    "two\nlines holds",
    "\u202etxt.exe",
    "tab\there",
    "-rf",
    "claims.jsonl ",
    "Claims.jsonl",
    ".hidden",
    "release/extra.json",
    "a" * 250,
    "nul\u2028separator",
    "bell\x07",
)


def _flip(case: Case) -> None:
    path = case.file()
    data = bytearray(path.read_bytes())
    for _ in range(case.chance.choice((1, 1, 2, 50))):
        data[case.chance.randrange(len(data))] ^= 1 << case.chance.randrange(8)
    path.write_bytes(data)


def _cut(case: Case) -> None:
    path = case.file()
    os.truncate(path, case.chance.randrange(path.stat().st_size))


def _lengthen(case: Case) -> None:
    with case.file().open("ab") as stream:
        stream.write(case.chance.choice((b"\0", b"\n", b" ", b"x" * 1000)))


def _drop(case: Case) -> None:
    case.file().unlink()


def _exchange(case: Case) -> None:
    first = case.file()
    second = case.pick(
        [each for each in case.release.iterdir() if each.is_file() and each != first]
    )
    data = first.read_bytes(), second.read_bytes()
    first.write_bytes(data[1])
    second.write_bytes(data[0])


def _of_another_release(case: Case) -> None:
    other = case.place / "project/releases/mini/v1.0.0"
    names = ["model.safetensors", "README.md", "claims.jsonl", "release/metrics.json"]
    name = case.pick(names)
    assert (other / name).read_bytes() != (case.release / name).read_bytes()
    shutil.copyfile(other / name, case.release / name)


def _rename(case: Case) -> None:
    path = case.file()
    path.rename(path.with_name(case.chance.choice((path.name + "x", path.name.upper() + "_"))))


def _add(case: Case) -> None:
    (case.release / case.chance.choice(NAMES)).write_text("x")


def _add_link(case: Case) -> None:
    target = case.chance.choice(("/etc/passwd", "README.md", "/dev/zero", "../../..", "nowhere"))
    (case.release / "link").symlink_to(target)


def _into_link(case: Case) -> None:
    path = case.file()
    moved = case.folder / "moved"
    path.rename(moved)
    path.symlink_to(moved)


def _into_other(case: Case) -> None:
    path = case.file()
    path.unlink()
    kind = case.chance.choice(("pipe", "folder", "socket"))
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        here = os.getcwd()  # noqa: PTH109 - a socket's path is short
        os.chdir(path.parent)
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
        os.chdir(here)


def _grow(case: Case) -> None:
    os.truncate(case.file(), case.chance.choice((8 * 2**30, 2**40)))


def _empty_folder(case: Case) -> None:
    (case.release / case.chance.choice(("empty", "release/empty", "a/b"))).mkdir(parents=True)


def _nest(case: Case) -> None:
    here = os.getcwd()  # noqa: PTH109 - deeper than a path can say
    os.chdir(case.release)
    for _ in range(1200):
        os.mkdir("d" * 20)  # noqa: PTH102
        os.chdir("d" * 20)
    os.chdir(here)


def _many(case: Case) -> None:
    folder = case.release / "many"
    folder.mkdir()
    for number in range(20_001):
        (folder / str(number)).touch()


ALTER_FOLDER: Mapping[str, Callable[[Case], str | None]] = {
    "flip": _flip,
    "cut": _cut,
    "lengthen": _lengthen,
    "drop": _drop,
    "exchange": _exchange,
    "of another release": _of_another_release,
    "rename": _rename,
    "add": _add,
    "add a link": _add_link,
    "into a link": _into_link,
    "into a pipe, folder or socket": _into_other,
    "sparse": _grow,
    "empty folder": _empty_folder,
    "deep folders": _nest,
    "too many files": _many,
}
