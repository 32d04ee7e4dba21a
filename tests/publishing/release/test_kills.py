"""kill -9 of the commands that make and move releases, at instants of chance."""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, suppress

import pytest

from posttrain.publishing.release.names import parse_tag
from posttrain.publishing.release.registry import Registry
from posttrain.publishing.release.tags import current
from posttrain.publishing.release.verify import verify_path

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
RANDOM = 20261121
# Every command is a process of its own that runs the real CLI; only the imports are done before.
FORKS = """
import json, os, sys, time
import mlflow, torch, transformers, polars
import posttrain.cli.release
import posttrain.publishing.release.create, posttrain.publishing.release.rebuild
from posttrain.cli.main import main
os.setpgid(0, 0)
for line in sys.stdin:
    order = json.loads(line)
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        os.chdir(order["where"])
        out = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1), os.dup2(out, 2)
        sys.argv = ["posttrain", "release", *order["arguments"]]
        main()
        os._exit(0)
    print(child, flush=True)
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)
"""


class Commands:
    """Runs commands in a project, and kills them."""

    def __init__(self, project, log, env):
        self.project, self.log = project, log
        self.forks = subprocess.Popen(
            [sys.executable, "-c", FORKS],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=env,
        )
        self.chance = random.Random(RANDOM)
        self.registry = Registry(project.root / ".posttrain")

    def start(self, *arguments):
        """The process id of a command that now runs."""
        order = {"where": str(self.project.root), "log": str(self.log), "arguments": arguments}
        self.forks.stdin.write(json.dumps(order) + "\n")
        self.forks.stdin.flush()
        return int(self.forks.stdout.readline())

    def end(self):
        """The exit status of the command that runs."""
        return int(self.forks.stdout.readline())

    def call(self, *arguments, code=0):
        """Run to the end; what it said, and the seconds that it took."""
        began = time.monotonic()
        self.start(*arguments)
        status = self.end()
        said = self.log.read_text()
        assert status == code, said
        return said, time.monotonic() - began

    def kill(self, *arguments, within):
        """Kill at a random instant; every other time only after it began to move pointers."""
        child = self.start(*arguments)
        journal = self.project.root / ".posttrain/release-pending.json"
        deadline = time.monotonic() + within
        if self.chance.random() < 0.6:
            while not journal.exists() and time.monotonic() < deadline:
                time.sleep(0.0005)
            time.sleep(self.chance.random() * 0.04)
        else:
            time.sleep(self.chance.random() * within)
        # With or without the git that it may have started.
        with suppress(ProcessLookupError):
            (os.killpg if self.chance.random() < 0.5 else os.kill)(child, signal.SIGKILL)
        return self.end() == -signal.SIGKILL


@pytest.fixture(scope="module")
def commands(released, tmp_path_factory):
    place = tmp_path_factory.mktemp("kills")
    project = released.project.copy(place / "project")
    project.commit("third")
    env = {**os.environ, "POSTTRAIN_KEYS": str(project.keys)}
    for name in ("POSTTRAIN_TRACKING", "MLFLOW_TRACKING_URI", "POSTTRAIN_LEDGER"):
        env.pop(name, None)
    found = Commands(project, place / "log", env)
    found.call("create", "mini")
    yield found
    found.forks.stdin.close()
    found.forks.wait(30)


def settled(commands):
    """What points to releases and stages, after everything was found to say the same."""
    root = commands.project.root
    refs = commands.project.git("tag").split()
    tagged = {ref for ref in refs if "@" in ref}
    with closing(sqlite3.connect(root / ".posttrain/ledger.db")) as ledger:
        assert {row[0] for row in ledger.execute("SELECT tag FROM releases")} == tagged
    versions = {ref.partition("@")[2] for ref in tagged}
    folder = root / "releases/mini"
    wanted = versions | {f"mini-{version}.tar" for version in versions}
    assert {path.name for path in folder.iterdir()} == wanted
    state = root / ".posttrain"
    registry = commands.registry
    found = registry._client.search_model_versions("name='mini'")
    # The first two were released where no tracking was on.
    assert {each.tags["posttrain.release"] for each in found} == versions - {"v1.0.0", "v1.1.0"}
    now = current(root, "mini", "prod")
    assert registry.assigned("mini", "prod") == (str(now.version) if now else None)
    assert not (state / "release-pending.json").exists()
    return tagged, now


def test_create_killed(commands, released):
    """The release is everywhere or nowhere, and the next call makes it."""
    killed, project = 0, commands.project
    took = commands.call("create", "mini", code=2)[1]
    for _ in range(16):
        project.commit("another")
        killed += commands.kill("create", "mini", within=took * 1.3)
        commands.call("list")
        before, _ = settled(commands)
        if not commands.project.git("tag", "--points-at", "HEAD").strip():
            took = commands.call("create", "mini")[1]
            assert len(settled(commands)[0]) == len(before) + 1
            assert list((project.root / ".posttrain/staging-releases").iterdir()) == []
        newest = project.git("tag", "--points-at", "HEAD").strip()
        for path in (
            project.root / "releases/mini" / newest.partition("@")[2],
            project.root / "releases/mini" / f"{newest.replace('@', '-')}.tar",
        ):
            assert verify_path(path, released.key, expect=parse_tag(newest)) == []
        if killed == 4:
            return
    raise AssertionError(f"only {killed} of 16 were still running when they were to be killed")


@pytest.mark.parametrize("verb", ["promote", "rollback"])
def test_a_stage_moved_and_killed(commands, verb):
    """The tag and the alias name one version at every time, and the next call moves them."""
    commands.project.commit("for the stages")
    for name in ("create", "promote"):
        took = commands.call(name, "mini", "--environment", "prod", code=2 * (name == "promote"))[1]
    newest = sorted(parse_tag(ref).version for ref in settled(commands)[0])
    there, here = (str(version) for version in newest[-2:])
    killed = 0
    for _ in range(16):
        order = ["promote", f"mini@{there}", "--environment", "prod"]
        if verb == "rollback":
            order = ["rollback", "mini", "--environment", "prod", "--to", there]
        killed += commands.kill(*order, within=took * 1.3)
        commands.call("list")
        now = str(settled(commands)[1].version)
        assert now in (here, there)
        if now == here:
            took = commands.call(*order)[1]
        assert str(settled(commands)[1].version) == there
        here, there = there, here
        if killed == 4:
            return
    raise AssertionError(f"only {killed} of 16 were still running when they were to be killed")
