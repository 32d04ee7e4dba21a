"""Alterations of the git tag of a release, and of what it is to point to."""

import re
import shutil
import subprocess
from collections.abc import Callable, Mapping

from benchmarks.reliability.altered import VERSION, Case

TAG = f"mini@{VERSION}"


def _git(case: Case, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=case.project, check=True, capture_output=True, text=True
    )
    return done.stdout


def _retag(case: Case, at: str, message: str) -> str:
    commit = _git(case, "rev-parse", at).strip()
    _git(case, "tag", "-d", TAG)
    _git(case, "tag", "-a", TAG, commit, "-m", message)
    return TAG


def _message(case: Case) -> str:
    return _git(case, "tag", "-l", "--format=%(contents)", TAG)


def _moved(case: Case) -> str:
    message = _message(case)
    _git(case, "commit", "-q", "--allow-empty", "-m", "later")
    return _retag(case, case.chance.choice(("HEAD", "mini@v1.0.0^{}")), message)


def _field(case: Case) -> str:
    message = _message(case)
    name = case.chance.choice(("statement", "archive-sha256", "policy"))
    value = case.chance.choice(("0" * 64, "", "\x1b[2K", "x" * 5000))
    changed = re.sub(rf"(?m)^{name}: .*$", f"{name}: {value}", message)
    if case.chance.random() < 0.3:
        changed = re.sub(rf"(?m)^{name}: .*\n", "", message)
    return _retag(case, f"{TAG}^{{}}", changed)


def _doubled_field(case: Case) -> str:
    name = case.chance.choice(("statement", "archive-sha256", "policy"))
    return _retag(case, f"{TAG}^{{}}", f"{_message(case)}\n{name}: {'1' * 64}\n")


def _light(case: Case) -> str:
    at = _git(case, "rev-parse", f"{TAG}^{{}}").strip()
    _git(case, "tag", "-d", TAG)
    _git(case, "tag", TAG, at)
    return TAG


def _other_release(case: Case) -> str:
    message = _git(case, "tag", "-l", "--format=%(contents)", "mini@v1.0.0")
    return _retag(case, "mini@v1.0.0^{}", message)


def _swapped_files(case: Case) -> str:
    folder = case.project / "releases/mini"
    if case.chance.random() < 0.5:
        shutil.copyfile(folder / "mini-v1.0.0.tar", folder / f"mini-{VERSION}.tar")
    else:
        shutil.rmtree(folder / VERSION)
        shutil.copytree(folder / "v1.0.0", folder / VERSION)
    return TAG


def _absent(case: Case) -> str:
    folder = case.project / "releases/mini"
    (folder / f"mini-{VERSION}.tar").unlink()
    shutil.rmtree(case.project / ".dvc/cache", ignore_errors=True)
    if case.chance.random() < 0.5:
        _git(case, "tag", "-d", TAG)
    return TAG


def _altered_folder(case: Case) -> str:
    path = (
        case.project / f"releases/mini/{VERSION}" / case.chance.choice(("README.md", "config.json"))
    )
    path.write_bytes(path.read_bytes() + b" ")
    return TAG


ALTER_TAG: Mapping[str, Callable[[Case], str | None]] = {
    "moved": _moved,
    "field of the message": _field,
    "field twice": _doubled_field,
    "lightweight": _light,
    "of another release": _other_release,
    "files of another release": _swapped_files,
    "archive gone": _absent,
    "folder altered": _altered_folder,
}
