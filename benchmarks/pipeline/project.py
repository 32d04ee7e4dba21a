"""The same no-op stages as a project of each contestant: shapes, parameters and edges are one list.

A stage reads what its upstream stages wrote, and writes one small JSON file. Its `label` goes into
nothing that it writes, so that changing the label of one stage asks for exactly one execution.
"""

import subprocess
import textwrap
from collections.abc import Mapping
from pathlib import Path

SHAPES = ("chain", "wide", "diamond")

_TASK = """
from noop.config import Config
from posttrain.stage.spec import ArtifactKind, Port, Task
REPORT = ArtifactKind.REPORT
TASK = Task("noop", Config, {"sources": Port(REPORT, "what came before", many=True, optional=True)},
    {"result": Port(REPORT, "a constant")})
"""
_CONFIG = '''
from posttrain.stage.config import StageConfig
class Config(StageConfig):
    label: str = "a"
    """Changes the key and nothing else."""
'''
_STAGE = """
import json
def run(config, inputs, outputs, context):
    seen = sum(json.loads(path.read_text())["one"] for path in inputs.values())
    outputs["result"].write_text(json.dumps({"one": 1 if seen == len(inputs) else 0}))
    return {}
"""
_FLOW = """
EDGES = {edges!r}
from noop import TASK
def declare(build):
    made = {{}}
    for name, upstream in EDGES.items():
        made[name] = build.stage(name, TASK, sources={{up: made[up]["result"] for up in upstream}})
"""
_LOOP = """
import json, sys
from pathlib import Path
EDGES = {edges!r}
def step(name, upstream):
    seen = sum(json.loads(Path("data", up).read_text())["one"] for up in upstream)
    Path("data", name).write_text(json.dumps({{"one": 1 if seen == len(upstream) else 0}}))
"""
_PLAIN = """
Path("data").mkdir(exist_ok=True)
for name, upstream in EDGES.items():
    step(name, upstream)
"""
_PREFECT = """
from prefect import flow, task
from prefect.cache_policies import INPUTS
from prefect.task_runners import ThreadPoolTaskRunner
@task(cache_policy=INPUTS, persist_result=True)
def stage(name, upstream, label):
    step(name, upstream)
@flow(task_runner=ThreadPoolTaskRunner(max_workers=4))
def pipeline():
    Path("data").mkdir(exist_ok=True)
    labels = json.loads(Path("labels.json").read_text())
    futures = {{}}
    for name, upstream in EDGES.items():
        wait_for = [futures[up] for up in upstream]
        futures[name] = stage.submit(name, upstream, labels.get(name, "a"), wait_for=wait_for)
    for future in futures.values():
        future.result()
pipeline()
"""


def edges(shape: str, num_stages: int) -> dict[str, list[str]]:
    """Stage -> its upstream stages, in an order in which they can run."""
    names = [f"s{number:04d}" for number in range(num_stages)]
    if shape == "chain":
        return {name: names[max(0, at - 1) : at] for at, name in enumerate(names)}
    if shape == "wide":
        middle = dict.fromkeys(names[1:-1], names[:1])
        return {names[0]: [], **middle, names[-1]: names[1:-1]}
    graph: dict[str, list[str]] = {names[0]: []}
    for at in range(1, num_stages):
        # Blocks of three on top of the last join: two sides, then the join of both.
        side, block = (at - 1) % 3, at - 1 - (at - 1) % 3
        graph[names[at]] = [names[block]] if side < 2 else [names[at - 2], names[at - 1]]
    return graph


def write_ours(folder: Path, graph: Mapping[str, list[str]]) -> None:
    """A posttrain project in its own git and DVC repository."""
    _repository(folder)
    _write(folder / "noop/__init__.py", _TASK)
    _write(folder / "noop/config.py", _CONFIG)
    _write(folder / "noop/stage.py", _STAGE)
    _write(folder / "noopflow/__init__.py", "")
    _write(folder / "noopflow/dag.py", _FLOW.format(edges=graph))
    label_ours(folder, {})


def label_ours(folder: Path, labels: Mapping[str, str]) -> None:
    """Give some stages another label."""
    changed = "".join(f"{name}: {{label: {label}}}\n" for name, label in labels.items())
    _write(folder / "recipe.yaml", f"flow: noopflow.dag\nrun: {{threads: 1}}\n{changed}")


def write_dvc(folder: Path, graph: Mapping[str, list[str]]) -> None:
    """A stock DVC project; its command is a builtin of the shell, so no interpreter starts."""
    _repository(folder)
    lines = ["stages:"]
    for name, upstream in graph.items():
        lines += [f"  {name}:", f"    cmd: echo '{{\"one\":1}}' > data/{name}"]
        lines += ["    deps:", *(f"    - data/{up}" for up in upstream)] if upstream else []
        lines += ["    params:", f"    - {name}.label", "    outs:", f"    - data/{name}"]
    _write(folder / "dvc.yaml", "\n".join(lines) + "\n")
    (folder / "data").mkdir()
    label_dvc(folder, dict.fromkeys(graph, "a"))


def label_dvc(folder: Path, labels: Mapping[str, str]) -> None:
    """Write the parameter of every stage."""
    lines = [f"{name}: {{label: {label}}}" for name, label in labels.items()]
    _write(folder / "params.yaml", "\n".join(lines) + "\n")


def write_scripts(folder: Path, graph: Mapping[str, list[str]]) -> None:
    """The plain loop, and the same functions as Prefect tasks with its own result cache."""
    folder.mkdir(parents=True)
    _write(folder / "loop.py", _LOOP.format(edges=graph) + _PLAIN)
    _write(folder / "flow.py", (_LOOP + _PREFECT).format(edges=graph))
    _write(folder / "labels.json", "{}")


def _repository(folder: Path) -> None:
    folder.mkdir(parents=True)
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    _write(folder / ".dvc/config", "[core]\n    analytics = false\n    check_update = false\n")
    _write(folder / ".dvcignore", ".posttrain/\n")
    _write(folder / ".gitignore", ".posttrain/\ndata/\n__pycache__/\n")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))
