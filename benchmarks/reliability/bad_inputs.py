"""Bad inputs, each through the command line: one sentence, the right exit code, nothing damaged?

    python -m benchmarks.reliability.bad_inputs [--kinds recipes,state] [--every 3]
    python -m benchmarks.reliability.bad_inputs --out benchmarks/reliability/bad_inputs.json

A small project is written and run once. Then each case of `bad_input_cases.json` breaks one thing
(a recipe, data, a model, the environment, the project's state, the disk), and a command is asked.
Of each is asked: its exit code (2, or 1 where a stage fails); that nothing holds a traceback; that
standard error ends with one sentence, which names the place, and has no other (behind that of a
stage that failed, a line may say how to go on); that no file of the project is another than before,
but for records of runs; and that `posttrain plan` says what it said before once that one thing is
mended, while all that the command left stays. Cases run in this process, which is quick, or in one
of their own where the environment or the project's code is what is broken. What was asked is
written to --out after each case; what stands there already is not asked again.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

_RECIPE = """\
flow: flows.small
format: 3
run: {threads: 1, retries: 0}
synthesize:
  sources:
  - {kind: jsonl, name: own, path: own.jsonl}
  heldout_fraction: 0.3
pretrain: {steps: 3}
sft: {steps: 2}
evaluate: {num_samples: 2, pass_at: [1, 2]}
"""
_RECORDS = (".git", ".posttrain", ".dvc", "__pycache__")
_MODEL = (
    "flow: flows.m\nformat: 3\nrun: {threads: 1, retries: 0}\nimport_model: {path: ../../model}\n"
)
_FLOW = """\
from tasks.import_model import TASK


def declare(build):
    build.stage("import_model", TASK)
"""


@dataclass(frozen=True)
class Case:
    """One bad input: `steps` break the project, then a command is asked."""

    kind: str
    name: str
    command: Sequence[str]
    names: str
    """What the sentence must hold: the place, as a person would look for it, and where that is a
    common word, what is wrong there. Where all is well, a line of the output must; empty: none."""
    steps: Sequence[Mapping[str, Sequence[Any]]] = ()
    """What is done to the project; `STEPS` by name, with arguments."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of the command; ROOT in them is the project."""
    codes: Sequence[int] = (2,)
    """Exit codes that are right; 0 where the input is bad and can be coped with."""
    leaves: bool = False
    """Stages ran well before the one that refuses: their outputs are the new ones."""
    alone: bool = False
    """In a process of its own, as the environment or the code is what is bad."""
    shell: str = ""
    """What a shell puts behind the command, such as `2>&-`."""


def read_cases() -> list[Case]:
    """Read all cases, by their kinds."""
    text = Path(__file__).with_name("bad_input_cases.json").read_text(encoding="utf-8")
    found = [Case(kind, **each) for kind, cases in json.loads(text).items() for each in cases]
    return [replace(case, command=[*map(_word, case.command)]) for case in found]


def _word(written: Any) -> str:
    return content_of(written).decode()


def content_of(written: Any) -> bytes:
    """Give the bytes of a file: those of a text, of hex digits, or of repeated texts."""
    if isinstance(written, str):
        return written.encode()
    if "bytes" in written:
        return bytes.fromhex(written["bytes"])
    return "".join(text * times for text, times in written["repeated"]).encode()


def _put(root: Path, name: str, content: Any) -> None:
    _remove(root / name)
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_bytes(content_of(content))


def _add(root: Path, name: str, text: str) -> None:
    (root / name).write_text((root / name).read_text() + text)


def _swap(root: Path, name: str, old: str, new: str) -> None:
    text = (root / name).read_text()
    assert old in text, (name, old)
    (root / name).write_text(text.replace(old, new))


def _gone(root: Path, name: str) -> None:
    assert os.path.lexists(root / name)
    _remove(root / name)


def _folder(root: Path, name: str) -> None:
    _remove(root / name)
    (root / name).mkdir(parents=True)


def _link(root: Path, name: str, target: str) -> None:
    _remove(root / name)
    (root / name).symlink_to(target)


def _pipe(root: Path, name: str) -> None:
    _remove(root / name)
    os.mkfifo(root / name)


def _cut(root: Path, name: str, size: int) -> None:
    os.truncate(root / name, size)


def _model(root: Path, name: str) -> None:
    """Lay a whole model there, and a recipe that imports it."""
    shutil.copytree(root / "data/sft/policy", root / name)
    for file in (root / name).iterdir():
        file.chmod(0o644)
    _put(root, "recipes/m/recipe.yaml", _MODEL)
    _put(root, "flows/m.py", _FLOW)


def _remove(place: Path) -> None:
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    else:
        with suppress(FileNotFoundError, NotADirectoryError):
            place.unlink()


STEPS: Mapping[str, Callable[..., None]] = {
    "put": _put, "add": _add, "swap": _swap, "gone": _gone, "folder": _folder, "link": _link,
    "pipe": _pipe, "cut": _cut, "model": _model,
}  # fmt: skip


def main() -> None:
    """Try the cases, print what is wrong with each, then the figures."""
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--kinds", help="comma between them [default: all]")
    options.add_argument("--every", type=int, default=1, help="each so-manieth case alone")
    options.add_argument("--only", help="cases whose name holds this text")
    options.add_argument("--unrun", action="store_true", help="of a project that never ran")
    options.add_argument("--verbose", action="store_true", help="print every sentence")
    options.add_argument("--out", type=Path, help="where figures and cases are kept")
    given = options.parse_args()
    cases = read_cases()
    kinds = given.kinds.split(",") if given.kinds else {case.kind for case in cases}
    chosen = [case for case in cases if case.kind in kinds and (given.only or "") in case.name]
    with tempfile.TemporaryDirectory() as folder:
        begun = time.monotonic()
        write(Path(folder))
        if not given.unrun:
            assert called(["run", "--local"], Path(folder) / "p").code == 0
        found = measure(Path(folder), chosen[:: given.every], given.out, verbose=given.verbose)
    figures = figures_of(found)
    figures |= {
        "minutes": round((time.monotonic() - begun) / 60, 1),
        "load": round(os.getloadavg()[0], 1),
    }
    print(json.dumps(figures, indent=1))
    sys.exit(1 if figures["wrong"] else 0)


def figures_of(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Count what was found, by kinds and exit codes."""
    return {
        "cases": len(found),
        "by_kind": dict(Counter(each["kind"] for each in found)),
        "exit_codes": {str(k): n for k, n in Counter(each["code"] for each in found).items()},
        "tracebacks": sum("a traceback" in each["wrong"] for each in found),
        "wrong": [each for each in found if each["wrong"]],
        "seconds": round(sum(each["seconds"] for each in found)),
    }


def write(folder: Path) -> None:
    """Write the project `p` into a folder: its recipe reads 24 sums from a file."""
    root = folder / "p"
    assert called(["init", str(root)], folder).code == 0
    (root / "recipe.yaml").write_text(_RECIPE)
    sums = ((a, b) for a in range(1, 7) for b in range(1, 5))
    rows = (
        {"prompt": f"{a} + {b} =", "answer": str(a + b), "solution": f"#### {a + b}"}
        for a, b in sums
    )
    (root / "own.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert called(["compile"], root).code == 0


def written(found: Sequence[Mapping[str, Any]]) -> str:
    """Spell what --out holds: the figures, then a line for each case."""
    cases = ",\n".join(map(json.dumps, found))
    return f'{{"figures": {json.dumps(figures_of(found), indent=1)},\n"cases": [\n{cases}\n]}}\n'


def measure(
    folder: Path, cases: Sequence[Case], out: Path | None = None, *, verbose: bool = False
) -> list[dict[str, Any]]:
    """Try cases on the project `p` of a folder, whose pristine state is kept beside it."""
    root, pristine = folder / "p", folder / "pristine"
    shutil.copytree(root, pristine, symlinks=True)
    expected = called(["plan"], root)
    found = json.loads(out.read_text())["cases"] if out and out.exists() else []
    asked = {(each["kind"], each["name"]) for each in found}
    for case in cases:
        if (case.kind, case.name) in asked:
            continue
        shutil.rmtree(root)
        shutil.copytree(pristine, root, symlinks=True)
        begun = time.monotonic()
        for step in case.steps:
            for name, arguments in step.items():
                STEPS[name](root, *arguments)
        broken = _contents(root, records=True)
        given = {name: text.replace("ROOT", str(root)) for name, text in case.environment.items()}
        said = called(case.command, root, given, alone=case.alone, shell=case.shell)
        wrong = [*judged(case, said)]
        if not case.leaves and _kept(broken) != _contents(root):
            wrong.append("files of the project changed")
        _mend(root, pristine, broken)
        after = called(["plan"], root)
        if after.code != expected.code or (after.out != expected.out and not case.leaves):
            wrong.append(f"then plan says: {(after.err or after.out)[-300:]}")
        seconds = round(time.monotonic() - begun, 1)
        line = said.line(case.names).replace(str(root), "ROOT")
        found.append({"kind": case.kind, "name": case.name, "code": said.code,
                      "said": line, "seconds": seconds, "wrong": wrong})  # fmt: skip
        if wrong or verbose:
            print(f"{case.kind}: {case.name}: {said.code} {line}\n    {wrong}", flush=True)
        if out:
            out.write_text(written(found), encoding="utf-8")
    return found


class Said:
    """How a command ended, and what it said."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    def line(self, names: str) -> str:
        """The sentence of an error; else the first line that names the place, or none."""
        lines = self.err.splitlines()
        if self.code:
            return next((line for line in reversed(lines) if line.startswith("error: ")), "")
        told = (line for line in [*lines, *self.out.splitlines()] if names in line)
        return next(told, "") if names else ""


def judged(case: Case, said: Said) -> Iterator[str]:
    """Say what is wrong with how a command took a case."""
    if said.code not in case.codes:
        yield f"exit code {said.code}"
    if "Traceback (most recent call last)" in said.out + said.err:
        yield "a traceback"
    lines = said.err.splitlines()
    sentences = [line for line in lines if line.startswith("error: ")]
    if case.names and said.code:
        if len(sentences) != 1:
            yield f"{len(sentences) or 'no'} sentences"
        elif said.code != 1 and lines[-1] != sentences[0]:
            yield f"behind the sentence: {lines[-1][:200]}"
    elif sentences:
        yield f"a sentence where none is due: {sentences[0][:200]}"
    if case.names not in said.line(case.names):
        yield f"it does not name {case.names!r}"


def called(
    words: Sequence[str],
    cwd: Path,
    environment: Mapping[str, str] | None = None,
    *,
    alone: bool = False,
    shell: str = "",
) -> Said:
    """Call `posttrain`, in this process or in one of its own, without MLflow."""
    changed = {"POSTTRAIN_TRACKING": "off", **(environment or {})}
    if alone or shell:
        kept = {**os.environ, "PYTHONPATH": str(Path.cwd()), **changed}
        command = [sys.executable, "-m", "posttrain", *words]
        if shell:
            command = ["bash", "-c", f'"$@" {shell}', "-", *command]
        done = subprocess.run(command, cwd=cwd, env=kept, capture_output=True, check=False,
                              stdin=subprocess.DEVNULL, timeout=180)  # fmt: skip
        return Said(done.returncode, done.stdout.decode(errors="replace"),
                    done.stderr.decode(errors="replace"))  # fmt: skip
    return _called_here(words, cwd, changed)


def _called_here(words: Sequence[str], cwd: Path, changed: dict[str, str]) -> Said:
    from posttrain.cli.main import main as run_command

    before, here, argv = dict(os.environ), Path.cwd(), sys.argv
    code: Any = 0
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, _into(out, err):
        os.environ.update(changed)
        os.chdir(cwd)
        sys.argv = ["posttrain", *words]
        try:
            run_command()
        except SystemExit as ended:
            code = ended.code or 0
        except BaseException as error:  # noqa: BLE001 - what Python would print a traceback of
            code = 1
            print(f"Traceback (most recent call last): {error!r}", file=sys.stderr)
        finally:
            sys.argv = argv
            os.chdir(here)
            os.environ.clear()
            os.environ.update(before)
            sys.stdout.flush()
            sys.stderr.flush()
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
    return Said(int(code), *texts)


@contextmanager
def _into(out: Any, err: Any) -> Iterator[None]:
    """Let standard output and error, also of what is started, go into files."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept, streams = [os.dup(1), os.dup(2)], (sys.stdout, sys.stderr)
    os.dup2(out.fileno(), 1)
    os.dup2(err.fileno(), 2)
    # Who tests this has streams of its own, which lead elsewhere.
    sys.stdout, sys.stderr = (os.fdopen(os.dup(number), "w") for number in (1, 2))
    try:
        yield
    finally:
        sys.stdout.close()
        sys.stderr.close()
        sys.stdout, sys.stderr = streams
        for number, saved in enumerate(kept, start=1):
            os.dup2(saved, number)
            os.close(saved)


def _contents(root: Path, *, records: bool = False) -> dict[str, Any]:
    """Every file by its path, with what tells whether it was changed."""
    found: dict[str, Any] = {}
    for folder, names, files in os.walk(root):
        names[:] = [name for name in names if records or name not in _RECORDS]
        for name in [*files, *(each for each in names if Path(folder, each).is_symlink())]:
            if name in _RECORDS and not records:
                continue
            path = Path(folder, name)
            with suppress(OSError):
                status = path.lstat()
                size = 0 if ".posttrain" in path.parts else status.st_size
                found[path.relative_to(root).as_posix()] = (
                    size,
                    status.st_mtime_ns,
                    status.st_mode,
                )
    return found


def _kept(contents: dict[str, Any]) -> dict[str, Any]:
    hidden = ({*Path(name).parts} & {*_RECORDS} for name in contents)
    return {name: each for (name, each), is_record in zip(contents.items(), hidden, strict=True)
            if not is_record}  # fmt: skip


def _mend(root: Path, pristine: Path, broken: dict[str, Any]) -> None:
    """Undo what the case did; what the command did since stays."""
    was = _contents(pristine, records=True)
    # Files that stand where folders belong go before what lay in the folders comes back.
    for name in sorted(broken.keys() | was.keys()):
        if broken.get(name) == was.get(name):
            continue
        place = root / name
        _remove(place)
        if name in was:
            for above in place.relative_to(root).parents:
                if not (root / above).is_dir():
                    _remove(root / above)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(pristine / name, place, follow_symlinks=False)


if __name__ == "__main__":
    main()
