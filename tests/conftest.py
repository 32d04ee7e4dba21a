"""Shards of the tests; a small project of real stages, for tests of everything around stages."""

from __future__ import annotations

import datetime
import gc
import importlib.util
import itertools
import os
import re
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

# Examples may take their time: a fifth of a second, the limit otherwise, is little beside others.
hypothesis.settings.register_profile("busy", deadline=None)
hypothesis.settings.load_profile("busy")
# Workers share the cores: one thread each, in the processes that tests start too.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Imports make a million objects that stay: the collector need not walk through them, now or later.
gc.disable()
# Also where Python is told to write none, bytecode of tests is kept: a third of collecting them.
_WRITES_NONE, sys.dont_write_bytecode = sys.dont_write_bytecode, False

if TYPE_CHECKING:
    from posttrain.pipeline.execution.session import Session
    from posttrain.pipeline.plan import Decision
    from posttrain.provenance.code.symbols import Definitions
    from posttrain.provenance.ledger import StageRun


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave out what needs vLLM where it is not."""
    if item.get_closest_marker("engines") and importlib.util.find_spec("vllm") is None:
        pytest.skip("vLLM is not installed here; run: make test-engines")


ROOT = Path(__file__).parents[1]
DURATIONS = ROOT / "tests/durations.tsv"
PASSED = ROOT / "docs/shards.tsv"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options for a part of the tests, and for noting how long they take."""
    group = parser.getgroup("shards")
    group.addoption("--shard", metavar="K/N", help="run the K-th of N parts, about equally long")
    group.addoption(
        "--record",
        action="store_true",
        help="write how long the tests took to tests/durations.tsv, and a shard that passed to"
        " docs/shards.tsv",
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep one shard of what the markers selected, the longest files first; give slow ones time."""
    durations = read_durations()
    weights: dict[str, float] = {}
    units = {item: unit_of(tiered(item.nodeid, item.keywords), durations) for item in items}
    for item, unit in units.items():
        # What was never measured: most quick tests take a fifth of a second, slow ones ten.
        guess = weights.get(unit, 0.0) + (10.0 if item.get_closest_marker("slow") else 0.2)
        weights[unit] = durations.get(unit, guess)
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            # A minute on a machine of one's own can be ten where nine others work.
            item.add_marker(pytest.mark.timeout(1200))
    if config.option.shard:
        number, shards = (int(word) for word in config.option.shard.split("/"))
        if not 1 <= number <= shards:
            raise pytest.UsageError("--shard takes K/N with 1 <= K <= N, such as 2/6")
        mine = {unit for unit, shard in assign(weights, shards).items() if shard == number}
        config.hook.pytest_deselected(items=[item for item in items if units[item] not in mine])
        items[:] = [item for item in items if units[item] in mine]
    if getattr(config.option, "dist", "no") == "loadfile" or hasattr(config, "workerinput"):
        # So that no worker begins a long file when the others have nothing left to do.
        files = dict.fromkeys((item.nodeid.partition("::")[0] for item in items), 0.0)
        for unit in set(map(units.__getitem__, items)):
            files[unit.partition(" ")[2].partition("::")[0]] += weights[unit]
        items.sort(key=lambda item: -files[item.nodeid.partition("::")[0]])


def read_durations() -> dict[str, float]:
    """Seconds of every unit: the slow or the quick tests of a file, or some that share no fixture.

    `slow tests/test_x.py` are those of a file that no longer unit names, such as
    `slow tests/test_x.py::test_y[1]`.
    """
    lines = DURATIONS.read_text().splitlines() if DURATIONS.exists() else []
    return {unit: float(seconds) for unit, seconds in (line.split("\t") for line in lines)}


def tiered(nodeid: str, keywords: Container[str]) -> str:
    """A test's name with its tier before it."""
    return f"{'slow' if 'slow' in keywords else 'quick'} {nodeid}"


def unit_of(name: str, durations: Mapping[str, float]) -> str:
    """The longest unit listed that a test belongs to; its tier of its file where none is."""
    listed = (unit for unit in durations if "::" in unit and name.startswith(unit))
    return max(listed, key=len, default=name.partition("::")[0])


def assign(weights: Mapping[str, float], shards: int) -> dict[str, int]:
    """The shard of every unit, from 1: the longest first, each to the shard with least so far."""
    loads, chosen = [0.0] * shards, {}
    for unit, seconds in sorted(weights.items(), key=lambda item: (-item[1], item[0])):
        lightest = loads.index(min(loads))
        loads[lightest] += seconds
        chosen[unit] = lightest + 1
    return chosen


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Collect garbage of tests alone, and write bytecode as told."""
    gc.freeze()
    gc.enable()
    sys.dont_write_bytecode = _WRITES_NONE


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Workers for `-n auto`: one more than cores, as many tests wait for processes of their own."""
    return min(4, len(os.sched_getaffinity(0)) + 1)


_TOOK: dict[str, float] = {}
_BEGAN = time.monotonic()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add up the time of every test, its fixtures included."""
    name = tiered(report.nodeid, report.keywords)
    _TOOK[name] = _TOOK.get(name, 0.0) + report.duration


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Write what was recorded, in the process that hears of all tests."""
    if not session.config.option.record or hasattr(session.config, "workerinput"):
        return
    if session.config.option.shard and exitstatus == 0:
        note_passed(session.config.option.shard)  # before the other file makes the tree dirty
    durations, sums = read_durations(), dict[str, float]()
    for name, seconds in _TOOK.items():
        unit = unit_of(name, durations)
        sums[unit] = sums.get(unit, 0.0) + seconds
    rows = sorted((durations | sums).items())
    DURATIONS.write_text("".join(f"{unit}\t{seconds:.1f}\n" for unit, seconds in rows))


def note_passed(shard: str) -> None:
    """Write the commit that passed a shard, the day, and the minutes that it took."""
    rows = [line.split("\t") for line in PASSED.read_text().splitlines()] if PASSED.exists() else []
    told = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True
    )
    minutes = f"{(time.monotonic() - _BEGAN) / 60:.0f}"
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    kept = {row[0]: row for row in rows} | {shard: [shard, told.stdout.strip(), today, minutes]}
    header = kept.pop("shard", ["shard", "commit", "day", "minutes"])
    PASSED.write_text("".join("\t".join(row) + "\n" for row in [header, *sorted(kept.values())]))


@pytest.fixture(scope="session", autouse=True)
def parsed_once() -> Iterator[None]:
    """Parse each source once a process: every project of a test starts without a memory of it.

    Of the first-party packages a table depends on its own and on those that its source names.
    """
    from posttrain.provenance.code import tree

    parse, known = tree.parse_module, {}

    def parse_once(
        source: bytes, module: str, *, is_package: bool, packages: Container[str]
    ) -> Definitions:
        words = {*re.findall(rb"\w+", source), module.partition(".")[0].encode()}
        named = frozenset(each for each in packages if each.encode() in words)
        asked = (source, module, is_package, named)
        if asked not in known:
            found = parse(source, module, is_package=is_package, packages=packages)
            known[asked] = found._replace(nodes={})
        return known[asked]

    tree.parse_module = parse_once
    yield
    tree.parse_module = parse


_NUMBERS = itertools.count()

TASK = """
from posttrain.stage.spec import ArtifactKind, Port, Task
from PACKAGE.config import Config
REPORT = ArtifactKind.REPORT
TASK = Task("PACKAGE", Config, {"source": Port(REPORT, "what to add to", optional=True),
    "files": Port(ArtifactKind.SOURCE, "files", many=True, optional=True)},
    {"result": Port(REPORT, "the sum")})
"""
CONFIG = '''
from posttrain.stage.config import StageConfig
class Config(StageConfig):
    amount: int = 1
    """What to add."""
    label: str = ""
    """Changes the key and not the result."""
    mood: str = "fine"
    """What the stage does before it writes: fine, fail, or a file to wait for."""
    path: str | None = None
    """A file to read."""
    def local_files(self):
        return {"given": self.path} if self.path else {}
'''
STAGE = """
import json
import time
from HELPER_MODULE import add
def run(config, inputs, outputs, context):
    # a comment
    before = json.loads(inputs["source"].read_text())["sum"] if "source" in inputs else 0
    total = add(before, config.amount)
    context.progress(1, 1)
    if config.mood == "fail":
        raise RuntimeError("told to fail")
    while config.mood.startswith("wait") and not (context.scratch / "go").exists():
        (context.scratch / "waiting").touch()
        time.sleep(0.05)
    outputs["result"].write_text(json.dumps({"sum": total}))
    return {"sum": float(total)}
"""
HELPER = '''
def add(a, b):
    """Add two numbers."""
    return a + b
def unrelated():
    return 1
'''
FLOW = """
from PACKAGE import TASK
def declare(build):
    first = build.stage("first", TASK)
    second = build.stage("second", TASK, source=first["result"])
    build.stage("third", TASK, source=second["result"])
"""


@dataclass
class Toy:
    """A project `first -> second -> third`, each adding its `amount` to what it reads."""

    root: Path
    package: str
    flow: str
    helper: str

    def write(self, relative: str, text: str) -> Path:
        """Write a file of the project."""
        path = self.root / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return path

    def recipe(self, text: str = "") -> Path:
        """Write recipe.yaml: the toy flow on one thread, plus `text`."""
        base = f"flow: {self.flow}\n" if "flow:" not in text else ""
        run = "run: {threads: 1, retries: 0}\n" if "run:" not in text else ""
        return self.write("recipe.yaml", base + run + textwrap.dedent(text))

    def run(self, *overrides: str, start: str | None = None) -> dict[str, StageRun]:
        """Run the recipe with the local runner in this process; return what happened by stage."""
        from posttrain.pipeline.execution.session import open_session

        with open_session(self.root, overrides) as session, session.workspace.locked("test"):
            if start:
                session.force(start)
            decisions = session.planner.plan()
            if all(decision.action == "cached" for decision in decisions):
                session.settle(decisions)
                return {}
            return _execute(session, decisions)

    def plan(self, *overrides: str) -> dict[str, Decision]:
        """Decide without running."""
        from posttrain.pipeline.execution.session import open_session

        with open_session(self.root, overrides) as session:
            return {decision.stage: decision for decision in session.planner.plan()}

    def cli(
        self, *arguments: str, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run `posttrain ...` in the project as a user would, see `tests.forked`."""
        from tests.forked import posttrain

        return posttrain(*arguments, cwd=self.root, environment=env)


def _execute(session: Session, decisions: Sequence[Decision]) -> dict[str, StageRun]:
    from posttrain.pipeline.execution.display import Display
    from posttrain.pipeline.execution.local import run_locally
    from posttrain.views.tracking.base import MemoryTracker

    session.run(
        decisions,
        runner=lambda executor, names: run_locally(executor, names, slots=2),
        tracker=MemoryTracker(),
        display=Display(),
        command="test",
    )
    return session.records


@contextmanager
def made_toy(folder: Path) -> Iterator[Toy]:
    """Make a toy project under git, with package names that no other test uses."""
    number = next(_NUMBERS)
    project = Toy(folder, f"toytask{number}", f"toyflows{number}.chain", f"toyhelp{number}.sums")
    for relative, text in {
        f"{project.package}/__init__.py": TASK,
        f"{project.package}/config.py": CONFIG,
        f"{project.package}/stage.py": STAGE,
        f"{project.helper.replace('.', '/')}.py": HELPER,
        f"toyhelp{number}/__init__.py": "",
        f"toyflows{number}/__init__.py": "",
        f"{project.flow.replace('.', '/')}.py": FLOW,
    }.items():
        named = text.replace("PACKAGE", project.package).replace("HELPER_MODULE", project.helper)
        project.write(relative, named)
    project.write(".dvc/config", "[core]\n    analytics = false\n")
    project.write(".dvcignore", "__pycache__/\n*.pyc\n.posttrain/\n")
    project.write(".gitignore", ".posttrain/\n__pycache__/\ndata/\n")
    project.recipe()
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    saved = list(sys.path)
    yield project
    sys.path[:] = saved


@pytest.fixture
def toy(tmp_path: Path) -> Iterator[Toy]:
    """A fresh toy project, see `made_toy`."""
    with made_toy(tmp_path) as made:
        yield made


@pytest.fixture
def public_path() -> Iterator[Path]:
    """A temporary folder that every user may enter; pytest keeps others out of its own."""
    with tempfile.TemporaryDirectory(prefix="posttrain-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture
def edit() -> Callable[[Path, str, str], None]:
    """Replace text in a file, failing if it is not there."""

    def replace(path: Path, old: str, new: str) -> None:
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    return replace


@pytest.fixture(scope="session")
def sandboxed() -> None:
    """Skip where no sandbox can be: that it is refused there has a test of its own."""
    from posttrain.backends.sandbox.launch import Sandbox
    from posttrain.stage.errors import UserError

    box = Sandbox()
    try:
        box.wait()
    except UserError as refused:
        pytest.skip(str(refused))
    finally:
        box.close()
