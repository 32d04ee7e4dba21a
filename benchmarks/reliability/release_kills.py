"""kill -9 of `posttrain release create | promote | rollback`, as processes that a user started.

    python -m benchmarks.reliability.release_kills --kills 12 --out release_kills.json
    python -m benchmarks.reliability.release_kills --place made --verbs rollback --kills 4

Half of the kills fall anywhere, half within 80 ms of the first change, which the command notes in
a journal. After each, `posttrain release list` is called, as the next command takes back what was
left; then tags, folders, archives, the ledger, MLflow's versions and its alias must say the same,
and what was released must verify. The same order given again must then do its work.
"""

import argparse
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.reliability import miniature
from posttrain.publishing.release import keys
from posttrain.publishing.release.names import parse_tag
from posttrain.publishing.release.registry import Registry
from posttrain.publishing.release.tags import current
from posttrain.publishing.release.verify import verify_path

VERBS = ("create", "promote", "rollback")


@dataclass
class Counts:
    """What became of the kills of one verb."""

    killed: int = 0
    half_done: int = 0
    inconsistent: list[str] = field(default_factory=list)
    not_done_again: int = 0


class Project:
    """A project whose commands are started and killed."""

    def __init__(self, root: Path, key_folder: Path, *, tracked: bool) -> None:
        self.root = root
        self.state = root / ".posttrain"
        self.key = keys.load_public(key_folder / "release.pub")
        self.registry = Registry(self.state) if tracked else None
        self.environment = {**os.environ, "POSTTRAIN_KEYS": str(key_folder)}
        for name in ("POSTTRAIN_LEDGER", "MLFLOW_TRACKING_URI", "POSTTRAIN_TRACKING"):
            self.environment.pop(name, None)
        if not tracked:
            self.environment["POSTTRAIN_TRACKING"] = "off"

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        """Start a command, in a group of its own."""
        return subprocess.Popen(
            [sys.executable, "-m", "posttrain", "release", *arguments],
            cwd=self.root,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def call(self, *arguments: str) -> tuple[int, str, float]:
        """Run a command to its end; its status, what it said, and how long it took."""
        began = time.monotonic()
        process = self.start(*arguments)
        said, _ = process.communicate(timeout=600)
        return process.returncode, said, time.monotonic() - began

    def kill(self, arguments: Sequence[str], took: float, chance: random.Random) -> bool:
        """Start a command and kill it, alone or with what it started; False where it had ended."""
        process = self.start(*arguments)
        journal = self.state / "release-pending.json"
        deadline = time.monotonic() + 2 * took
        if chance.random() < 0.5:
            while not journal.exists() and process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.001)
            time.sleep(chance.random() * 0.08)
        else:
            time.sleep(chance.random() * took)
        if process.poll() is None:
            with_children = chance.random() < 0.5
            (os.killpg if with_children else os.kill)(process.pid, signal.SIGKILL)
        process.communicate(timeout=600)
        return process.returncode == -signal.SIGKILL

    def git(self, *arguments: str) -> str:
        """Run git here."""
        done = subprocess.run(
            ["git", *arguments], cwd=self.root, check=True, capture_output=True, text=True
        )
        return done.stdout

    def disagreement(self) -> str:
        """Return what does not say the same as the git tags; empty where all do."""
        tagged = {ref for ref in self.git("tag").split() if "@" in ref}
        with closing(sqlite3.connect(self.state / "ledger.db")) as ledger:
            recorded = {row[0] for row in ledger.execute("SELECT tag FROM releases")}
        versions = {ref.partition("@")[2] for ref in tagged}
        folder = self.root / "releases/mini"
        wanted = versions | {f"mini-{version}.tar" for version in versions}
        now = current(self.root, "mini", "prod")
        checks = {
            "ledger": recorded == tagged,
            "files": {path.name for path in folder.iterdir()} == wanted,
            "journal": not (self.state / "release-pending.json").exists(),
        }
        if self.registry is not None:
            expected = str(now.version) if now else None
            checks["alias"] = self.registry.assigned("mini", "prod") == expected
            # The first two were made where no tracking was on.
            known = {each for each in versions if self.registry.knows("mini", each)}
            checks["MLflow's versions"] = known == versions - {"v1.0.0", "v1.1.0"}
        for version in versions - {"v1.0.0", "v1.1.0"}:
            tag = parse_tag(f"mini@{version}")
            for path in (tag.folder(self.root), tag.archive(self.root)):
                checks[str(path.name)] = not verify_path(path, self.key, expect=tag)
        return ", ".join(name for name, agrees in checks.items() if not agrees)


def main() -> None:
    options = _options()
    with tempfile.TemporaryDirectory() as temporary:
        place = options.place or Path(temporary) / "made"
        if not (place / "project/releases").is_dir():
            miniature.make(place)
        root = Path(temporary) / "project"
        shutil.copytree(place / "project", root, symlinks=True)
        project = Project(root, place / "keys", tracked=not options.untracked)
        counts = {verb: run(project, verb, options.kills, options.seed) for verb in options.verbs}
    print("| command | kills | half-done at first | inconsistent later | again in vain |")
    print("|---|---|---|---|---|")
    for verb, each in counts.items():
        wrong = len(each.inconsistent)
        print(f"| {verb} | {each.killed} | {each.half_done} | {wrong} | {each.not_done_again} |")
    if options.out:
        report = {
            "seed": options.seed,
            "verbs": {verb: vars(each) for verb, each in counts.items()},
        }
        options.out.write_text(json.dumps(report, indent=1) + "\n")
    sys.exit(any(each.inconsistent or each.not_done_again for each in counts.values()))


def run(project: Project, verb: str, kills: int, seed: int) -> Counts:
    """Kill one verb until it was killed so many times.

    Args:
        project: Of `miniature.make`, in a copy.
        verb: create, promote or rollback.
        kills: How many must meet the command alive.
        seed: Of the instants.

    Returns:
        What became of them.

    """
    chance = random.Random(f"{seed} {verb}")
    counts = Counts()
    # Two releases that MLflow knows, to go to and fro between.
    while project.git("tag", "--list", "mini@*").count("\n") < 4:
        project.git("commit", "-q", "--allow-empty", "-m", "another")
        _require(project, "create", "mini")
    there, here = _newest(project)
    if current(project.root, "mini", "prod") is None:
        _require(project, "promote", here, "--environment", "prod")
    took = 15.0
    for _ in range(3 * kills):
        if counts.killed == kills:
            break
        now = current(project.root, "mini", "prod")
        assert now is not None
        there = next(tag for tag in _newest(project) if not tag.endswith(str(now.version)))
        if verb == "create":
            project.git("commit", "-q", "--allow-empty", "-m", "another")
            order = ["create", "mini"]
        elif verb == "promote":
            order = ["promote", there, "--environment", "prod"]
        else:
            order = ["rollback", "mini", "--environment", "prod", "--to", there.partition("@")[2]]
        counts.killed += project.kill(order, took, chance)
        counts.half_done += (project.state / "release-pending.json").exists()
        status, said, _ = project.call("list")
        if status or (wrong := project.disagreement()):
            counts.inconsistent.append(said.strip() if status else wrong)
        if not _is_done(project, verb, there):
            status, said, took = project.call(*order)
            counts.not_done_again += status != 0 or not _is_done(project, verb, there)
            if wrong := project.disagreement():
                counts.inconsistent.append(f"done again: {wrong}")
        print(f"{verb}: {counts}", file=sys.stderr, flush=True)
    return counts


def _is_done(project: Project, verb: str, there: str) -> bool:
    if verb == "create":
        return bool(project.git("tag", "--points-at", "HEAD", "--list", "mini@*").strip())
    now = current(project.root, "mini", "prod")
    return now is not None and there.endswith(str(now.version))


def _newest(project: Project) -> list[str]:
    found = [parse_tag(ref) for ref in project.git("tag", "--list", "mini@*").split()]
    return [str(tag) for tag in sorted(found, key=lambda tag: tag.version)[-2:]]


def _require(project: Project, *arguments: str) -> None:
    status, said, _ = project.call(*arguments)
    if status:
        raise RuntimeError(said)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--place", type=Path, help="Where releases are, or are to be made once.")
    parser.add_argument("--verbs", nargs="+", choices=VERBS, default=list(VERBS))
    parser.add_argument("--kills", type=int, default=12, help="Of each verb.")
    parser.add_argument("--seed", type=int, default=20261122)
    parser.add_argument("--untracked", action="store_true", help="Without MLflow, which is slow.")
    parser.add_argument("--out", type=Path, help="Where to write the figures, as JSON.")
    return parser.parse_args()


if __name__ == "__main__":
    main()
