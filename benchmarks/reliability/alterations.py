"""Alter a release in hundreds of ways: none may hold, break the command, take long or much memory.

    python -m benchmarks.reliability.alterations --out benchmarks/reliability/alterations.json
    python -m benchmarks.reliability.alterations --place made --only tar --count 40    # made once

`posttrain release verify` runs as a process for each, forked after its imports, with a limit of 5 s
of a processor and of 1 GiB, imports included. The alterations are drawn from a seed: of the folder,
of the claims without the key, of the archive, of the git tag, and by an insider, who holds the key
and signs anew what contradicts the rest of the release.
"""

import argparse
import contextlib
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.reliability import miniature
from benchmarks.reliability.alter_claims import ALTER_CLAIMS
from benchmarks.reliability.alter_folder import ALTER_FOLDER
from benchmarks.reliability.alter_insider import ALTER_INSIDER
from benchmarks.reliability.alter_tag import ALTER_TAG
from benchmarks.reliability.alter_tar import ALTER_TAR
from benchmarks.reliability.altered import Case

SECONDS, BYTES = 5.0, 2**30
# After so many seconds by the clock it hangs, however busy the machine is.
_PATIENCE = 60
SHARES = {"folder": 70, "claims": 60, "tar": 100, "insider": 70, "tag": 30}
WAYS: Mapping[str, Mapping[str, Callable[[Case], str | None]]] = {
    "folder": ALTER_FOLDER,
    "claims": ALTER_CLAIMS,
    "tar": ALTER_TAR,
    "insider": ALTER_INSIDER,
    "tag": ALTER_TAG,
}


@dataclass(frozen=True)
class Verdict:
    """What `release verify` did with one alteration; `wrong` says what it should not have done."""

    room: str
    way: str
    number: int
    seconds: float
    mebibytes: float
    said: str
    wrong: str


def main() -> None:
    options = _options()
    with tempfile.TemporaryDirectory() as temporary:
        place = options.place or Path(temporary) / "made"
        if not (place / "project/releases").is_dir():
            miniature.make(place)
        rooms = [options.only] if options.only else list(SHARES)
        verdicts = []
        for room in rooms:
            for each in run(place, room, options.count or SHARES[room], options.seed):
                verdicts.append(each)
                if each.wrong or options.verbose:
                    wrong = each.wrong or "found"
                    print(f"{room} {each.way} {each.number}: {wrong}: {each.said}", flush=True)
    print(_table(verdicts))
    if options.out:
        # Kinds that an earlier call tried are kept.
        report = json.loads(options.out.read_text()) if options.out.is_file() else {"rooms": {}}
        report["rooms"] |= _summary(verdicts)
        report["seed"] = options.seed
        options.out.write_text(json.dumps(report, indent=1) + "\n")
    sys.exit(any(each.wrong for each in verdicts))


def run(place: Path, room: str, count: int, seed: int) -> Iterator[Verdict]:
    """Try alterations of one kind, each way in turn.

    Args:
        place: What `miniature.make` made.
        room: Folder, claims, tar, insider or tag.
        count: How many.
        seed: Of the random numbers.

    Yields:
        What became of each.

    """
    import in_toto_attestation.predicates.provenance.v1.provenance_pb2
    import torch

    import posttrain.cli.release_check
    import posttrain.publishing.release.registered
    import posttrain.publishing.release.verify
    from posttrain.publishing.release import keys

    assert torch
    assert in_toto_attestation.predicates.provenance.v1.provenance_pb2
    assert posttrain.cli.release_check
    assert posttrain.publishing.release.registered
    assert posttrain.publishing.release.verify
    keys.load_public(place / "keys/release.pub")
    baseline = _verify(place, place / "project/releases/mini/v1.1.0", place / "said")
    if baseline.status != 0:
        raise RuntimeError(f"the release does not hold before it is altered: {baseline.said}")
    ways = WAYS[room]
    for number in range(count):
        way = list(ways)[number % len(ways)]
        with _folder(place) as folder:
            case = Case(place, folder, random.Random(f"{seed} {room} {number}"))
            target = ways[way](case) or str(case.altered)
            done = _verify(place, target, folder / "said", cwd=case.cwd)
        seconds, mebibytes = round(done.seconds, 2), round(done.mebibytes, 1)
        yield _judged(Verdict(room, way, number, seconds, mebibytes, "", ""), done)


@contextlib.contextmanager
def _folder(place: Path) -> Iterator[Path]:
    """A folder that is removed again, also where it got too deep for Python."""
    folder = tempfile.mkdtemp(dir=place)
    try:
        yield Path(folder)
    finally:
        subprocess.run(["rm", "-rf", folder], check=True)  # noqa: S607


@dataclass(frozen=True)
class _Done:
    status: int
    seconds: float
    mebibytes: float
    said: str


def _judged(verdict: Verdict, done: "_Done") -> Verdict:
    lines = done.said.split("\n")
    wrong = ""
    if done.status == -signal.SIGALRM or verdict.seconds > SECONDS:
        wrong = "too long"
    elif done.status == 0:
        wrong = "holds"
    elif "Traceback" in done.said or done.status not in (1, 2):
        wrong = f"breaks with {done.status}"
    elif not all(line.isprintable() for line in lines):
        wrong = "prints what a terminal obeys"
    elif verdict.mebibytes > BYTES / 2**20:
        wrong = "too much memory"
    first = next((line for line in lines if not line.endswith("holds")), "")
    return Verdict(**{**asdict(verdict), "wrong": wrong, "said": ascii(first[:200])[1:-1]})


def _verify(place: Path, target: Path | str, log: Path, *, cwd: Path | None = None) -> _Done:
    """Run the command in a fork of this process."""
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        _run_forked(place, str(target), log, cwd or place)
    _, status, used = os.wait4(child, 0)
    # Waiting for others, on a machine that is not idle, is not the command's.
    took = min(time.monotonic() - began, used.ru_utime + used.ru_stime)
    said = log.read_text(errors="backslashreplace").strip() if log.exists() else ""
    return _Done(os.waitstatus_to_exitcode(status), took, used.ru_maxrss / 1024, said)


def _run_forked(place: Path, target: str, log: Path, cwd: Path) -> None:
    code = 70
    try:
        signal.alarm(_PATIENCE)
        limit = 8 * BYTES
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        os.chdir(cwd)
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1)
        os.dup2(out, 2)
        # Whoever called may have put something else there.
        sys.stdout, sys.stderr = (os.fdopen(number, "w", closefd=False) for number in (1, 2))
        from posttrain.cli.main import main as command

        key = place / "keys/release.pub"
        sys.argv = ["posttrain", "release", "verify", target, "--key", str(key)]
        code = 0
        command()
    except SystemExit as stopped:
        code = stopped.code if isinstance(stopped.code, int) else 1
    except BaseException:  # noqa: BLE001 - what a person would see
        traceback.print_exc()
        code = 70
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _summary(verdicts: list[Verdict]) -> dict[str, dict[str, Any]]:
    rooms: dict[str, dict[str, Any]] = {}
    by_room = defaultdict(list)
    for each in verdicts:
        by_room[each.room].append(each)
    for room, found in by_room.items():
        rooms[room] = {
            "tried": len(found),
            "ways": dict(Counter(each.way for each in found)),
            "wrong": [f"{each.way} {each.number}: {each.wrong}" for each in found if each.wrong],
            "slowest_seconds": max(each.seconds for each in found),
            "most_mebibytes": max(each.mebibytes for each in found),
        }
    return rooms


def _table(verdicts: list[Verdict]) -> str:
    lines = [
        "| what was altered | ways | tried | found | not | slowest, of a processor | most memory |",
        "|---|---|---|---|---|---|---|",
    ]
    for room, found in _summary(verdicts).items():
        wrong = len(found["wrong"])
        lines.append(
            f"| {room} | {len(found['ways'])} | {found['tried']} | {found['tried'] - wrong} "
            f"| {wrong} | {found['slowest_seconds']:.1f} s | {found['most_mebibytes']:.0f} MiB |"
        )
    return "\n".join(lines)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--place", type=Path, help="Where releases are, or are to be made once.")
    parser.add_argument("--only", choices=list(SHARES), help="One kind of alteration.")
    parser.add_argument("--count", type=int, help="How many of each kind.")
    parser.add_argument("--seed", type=int, default=20261122)
    parser.add_argument("--verbose", action="store_true", help="Print what was said of each.")
    parser.add_argument("--out", type=Path, help="Where to write the figures, as JSON.")
    return parser.parse_args()


if __name__ == "__main__":
    main()
