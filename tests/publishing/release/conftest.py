"""Two real releases of a miniature of the default recipe, made once for all tests of a process."""

import os
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from filelock import FileLock

from posttrain.pipeline.execution.display import Display
from posttrain.pipeline.execution.local import run_locally
from posttrain.pipeline.execution.session import open_session
from posttrain.publishing.release import keys
from posttrain.publishing.release.create import create
from posttrain.publishing.release.names import parse_tag
from posttrain.views.tracking.base import MemoryTracker

ROOT = Path(__file__).parents[3]
FLOW = """
from tasks.evaluate import TASK as EVALUATE
from tasks.pretrain import TASK as PRETRAIN
from tasks.sft import TASK as SFT
from tasks.synthesize import TASK as SYNTHESIZE
def declare(build):
    raw = build.stage("synthesize", SYNTHESIZE)
    base = build.stage("pretrain", PRETRAIN, corpus=raw["corpus"])
    sft = build.stage("sft", SFT, policy=base["policy"], traces=raw["traces"])
    build.stage("evaluate", EVALUATE, problems=raw["heldout"],
        policies={"base": base["policy"], "sft": sft["policy"]})
"""
RECIPE = """
flow: FLOW
run: {threads: 1, retries: 0}
synthesize:
  sources:
  - {kind: reasoning_gym, name: chain_sum, levels: [2, 3], graded: [min_terms, max_terms],
     options: {min_digits: 1, max_digits: 1}}
  num_problems: 60
  num_heldout: 24
  solutions_per_problem: 2
pretrain: {steps: 3, vocab_size: 300, hidden: 16, layers: 1, heads: 2, checkpoint_every: 50}
sft: {steps: 2, checkpoint_every: 50}
evaluate: {num_samples: 2, pass_at: [1, 2], max_tokens: 12, num_exhibits: 1}
release:
  policy: sft.policy
  license: MIT
  gates:
  - {name: works, kind: threshold, at_least: 0.0, seeds: 2}
  - {name: not-worse, kind: no_regression, against: parent, without_parent: base,
     tolerance: 1.0, seeds: 2}
  - {name: length, kind: limit, metric: evaluate/sft/mean_length, at_most: 13}
"""
_flows = 0


@dataclass
class Project:
    """A project with real tasks, and its keys."""

    root: Path
    keys: Path
    flow: str

    @property
    def recipe(self):
        return self.root / "recipe.yaml"

    def edit(self, old, new):
        """Change the recipe."""
        text = self.recipe.read_text()
        assert old in text
        self.recipe.write_text(text.replace(old, new))

    def commit(self, message="change"):
        """Commit everything that git does not ignore."""
        self.git("add", ".")
        self.git("commit", "-q", "--allow-empty", "-m", message)

    def git(self, *arguments):
        """Run git here."""
        return subprocess.run(
            ["git", *arguments], cwd=self.root, check=True, capture_output=True, text=True
        ).stdout

    def run(self, *overrides, only=None):
        """Bring the recipe, or one stage, up to date."""
        with open_session(self.root, overrides) as session, session.workspace.locked("test"):
            decisions = session.single(only) if only else session.planner.plan()
            session.run(
                decisions,
                runner=lambda executor, names: run_locally(executor, names, slots=1),
                tracker=MemoryTracker(),
                display=Display(),
                command="test",
            )

    def evaluate_again(self, seed):
        """Evaluate what is there with another seed, then come back."""
        self.run(f"run.seed={seed}", only="evaluate")
        self.run()

    def session(self):
        """Open the recipe."""
        return open_session(self.root)

    def create(self, tag, registry=None):
        """Release what is there."""
        with self.session() as session:
            return create(session, tag, keys.load_signer(self.keys / "release.key"), registry)

    def copy(self, where):
        """The same project elsewhere, with all that it remembers."""
        shutil.copytree(self.root, where, symlinks=True)
        return Project(where, self.keys, self.flow)


def new_project(root, pair):
    """A committed project that has not run yet."""
    global _flows
    _flows += 1
    name = f"releaseflows{os.getpid()}x{_flows}"
    project = Project(root, pair, f"{name}.mini")
    (root / name).mkdir(parents=True)
    (root / name / "__init__.py").write_text("")
    (root / name / "mini.py").write_text(FLOW)
    (root / "tasks").symlink_to(ROOT / "tasks")
    (root / ".dvc").mkdir()
    (root / ".dvc/config").write_text("[core]\n    analytics = false\n")
    (root / ".dvcignore").write_text("__pycache__/\n*.pyc\n.posttrain/\n")
    (root / ".gitignore").write_text(".posttrain/\n__pycache__/\ndata/\n")
    project.recipe.write_text(RECIPE.replace("FLOW", project.flow))
    project.git("init", "-q")
    project.git("config", "user.email", "test@example.org")
    project.git("config", "user.name", "test")
    project.commit("start")
    return project


@dataclass(frozen=True)
class Released:
    """A project with two releases, and the folder of each."""

    project: Project
    first: Path
    second: Path

    @property
    def key(self):
        return keys.load_public(self.project.keys / "release.pub")

    @property
    def signer(self):
        return keys.load_signer(self.project.keys / "release.key")


@pytest.fixture(scope="session")
def start_project():
    """`new_project`, for tests that need a recipe of their own."""
    return new_project


@pytest.fixture(scope="session")
def released(tmp_path_factory) -> Released:
    """mini@v1.0.0 and, after a change of the recipe, mini@v1.1.0 (default version).

    Made by the first worker that needs it; nobody changes it, whoever wants to takes a copy.
    """
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    place = shared / "released"
    with FileLock(shared / "released.lock"):
        if not (place / "flow").exists():
            place.mkdir()
            keys.make_pair(place / "keys")
            (place / "flow").write_text(release_twice(place).flow)
    project = Project(place / "project", place / "keys", (place / "flow").read_text())
    folder = project.root / "releases/mini"
    return Released(project, folder / "v1.0.0", folder / "v1.1.0")


def release_twice(place):
    """The project behind `released`."""
    saved = list(sys.path)
    project = new_project(place / "project", place / "keys")
    project.run()
    project.evaluate_again(1)
    project.commit("first")
    project.create("mini@v1.0.0")
    project.edit("sft: {steps: 2", "sft: {steps: 3")
    project.run()
    project.evaluate_again(1)
    project.commit("second")
    assert project.create("mini").tag == parse_tag("mini@v1.1.0")
    sys.path[:] = saved
    return project


@pytest.fixture
def free_port():
    """A port of this machine that nothing listens at."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]
