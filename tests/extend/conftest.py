"""A miniature project in which a plug-in stands in every slot, run once for all tests."""

from __future__ import annotations

import ast
import hashlib
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from ruamel.yaml import YAML

from tests.forked import posttrain

if TYPE_CHECKING:
    from posttrain.pipeline.plan import Decision
    from posttrain.provenance.ledger import StageRun

ROOT = Path(__file__).parents[2]
PLUGINS = sorted((Path(__file__).parent / "plugins").glob("my_*.py"))
# A kind of artifact is no part: a task of one's own has it on a port.
TASK = Path(__file__).parent / "plugins" / "my_artifact_kind"

FLOW = """
import my_artifact_kind
from tasks.curate import TASK as CURATE
from tasks.diagnose import TASK as DIAGNOSE
from tasks.evaluate import TASK as EVALUATE
from tasks.preference import TASK as PREFERENCE
from tasks.pretrain import TASK as PRETRAIN
from tasks.probe import TASK as PROBE
from tasks.rl import TASK as RL
from tasks.sft import TASK as SFT
from tasks.synthesize import TASK as SYNTHESIZE
def declare(build):
    raw = build.stage("synthesize", SYNTHESIZE)
    data = build.stage("curate", CURATE, problems=raw["problems"], heldout=raw["heldout"],
        traces=raw["traces"])
    build.stage("lengths", my_artifact_kind.TASK, problems=data["problems"])
    base = build.stage("pretrain", PRETRAIN, corpus=raw["corpus"])["policy"]
    sft = build.stage("sft", SFT, policy=base, traces=data["traces"])["policy"]
    probe = build.stage("probe", PROBE, policy=sft, problems=data["problems"])
    build.stage("preference", PREFERENCE, policy=sft, samples=probe["samples"],
        problems=data["problems"])
    rl = build.stage("rl", RL, policy=sft, problems=data["problems"])
    build.stage("evaluate", EVALUATE, problems=raw["heldout"],
        policies={"base": base, "sft": sft, "rl": rl["policy"]})
    build.stage("diagnose", DIAGNOSE, policies={"sft": sft, "rl": rl["policy"]})
"""
RECIPE = """
flow: extendflows.mini
format: 3
run: {threads: 1, retries: 1}
synthesize: {solutions_per_problem: 4}
pretrain: {steps: 2, vocab_size: 280, hidden: 16, layers: 1, heads: 2}
sft: {steps: 2}
probe: {num_samples: 4, max_tokens: 6}
preference: {steps: 2}
rl: {steps: 4, problems_per_step: 3, group_size: 4, max_tokens: 6, checkpoint_every: 1}
evaluate: {num_samples: 1, pass_at: [1], max_tokens: 4, num_exhibits: 1}
import_chats: {task: tasks.import_chats}
"""
TICKETS = """
{"subject": "It does not start", "replies": ["Did you plug it in?"]}
{"subject": "It does not end", "replies": ["Wait.", "Pull the plug."]}
"""


def documented(plugin: Path) -> tuple[str, str]:
    """What the docstring of a plug-in says, and the piece of a recipe that it ends with."""
    text = ast.get_docstring(ast.parse(plugin.read_text()))
    said, _, recipe = text.partition("\n\n")
    return said, recipe


def merged(base: dict, more: dict) -> dict:
    """Mappings key by key, lists of named mappings by name; anything else is replaced."""

    def both(old: object, new: object) -> object:
        if isinstance(old, dict):
            return merged(old, new)
        if isinstance(old, list) and all(isinstance(each, dict) and "name" in each for each in old):
            return [*{each["name"]: each for each in [*old, *new]}.values()]
        return new

    return {**base, **{key: both(base.get(key), value) for key, value in more.items()}}


def tree_digest() -> str:
    """Of every file of the package: what nobody may touch to add a method."""
    files = sorted(path for room in ("posttrain", "tasks", "flows") for path in ROOT.glob(room))
    digest = hashlib.sha256()
    for file in sorted(each for folder in files for each in folder.rglob("*.py")):
        digest.update(str(file).encode() + file.read_bytes())
    return digest.hexdigest()


@dataclass
class Extended:
    """The project, and what its first run made."""

    root: Path
    records: dict[str, StageRun] = field(default_factory=dict)

    def plan(self) -> dict[str, Decision]:
        """Decide without running, by the plug-ins that are on disk now."""
        from posttrain.pipeline.execution.session import open_session

        forget()
        with open_session(self.root) as session:
            return {decision.stage: decision for decision in session.planner.plan()}

    def run(self) -> dict[str, StageRun]:
        """Bring everything up to date in this process's own stages."""
        from posttrain.pipeline.execution.display import Display
        from posttrain.pipeline.execution.local import run_locally
        from posttrain.pipeline.execution.session import open_session
        from posttrain.views.tracking.base import MemoryTracker

        forget()
        with open_session(self.root) as session, session.workspace.locked("test"):
            session.run(
                session.planner.plan(),
                runner=lambda executor, names: run_locally(executor, names, slots=2),
                tracker=MemoryTracker(),
                display=Display(),
                command="test",
            )
            return dict(session.records)

    def cli(self, *arguments: str) -> str:
        """Run `posttrain ...` in the project as a user would; its output."""
        done = posttrain(*arguments, cwd=self.root)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def forget() -> None:
    """Let plug-ins be imported anew."""
    for name in [*(plugin.stem for plugin in PLUGINS), TASK.name, "extendflows.mini"]:
        sys.modules.pop(name, None)


@pytest.fixture(scope="session")
def extended(tmp_path_factory: pytest.TempPathFactory):
    """The miniature with a plug-in in every slot, run from synthesis to evaluation."""
    root = tmp_path_factory.mktemp("extended")
    before, saved = tree_digest(), list(sys.path)
    values = YAML(typ="safe").load(RECIPE)
    for plugin in PLUGINS:
        (root / plugin.name).write_text(plugin.read_text())
        values = merged(values, YAML(typ="safe").load(documented(plugin)[1]) or {})
    shutil.copytree(TASK, root / TASK.name, ignore=shutil.ignore_patterns("__pycache__"))
    values["plugins"] = [plugin.stem for plugin in PLUGINS]
    (root / "tickets.jsonl").write_text(TICKETS)
    (root / "extendflows").mkdir()
    (root / "extendflows" / "__init__.py").touch()
    (root / "extendflows" / "mini.py").write_text(FLOW)
    with (root / "recipe.yaml").open("w") as file:
        YAML().dump(values, file)
    (root / ".dvc").mkdir()
    (root / ".dvc" / "config").write_text("[core]\n    analytics = false\n")
    (root / ".dvcignore").write_text("__pycache__/\n.posttrain/\n")
    (root / ".gitignore").write_text(".posttrain/\n__pycache__/\ndata/\n")
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    project = Extended(root)
    project.records = project.run()
    yield project
    forget()
    sys.path[:] = saved
    assert tree_digest() == before
