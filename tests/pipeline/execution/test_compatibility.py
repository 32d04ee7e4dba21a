"""A run records what its models carry inside, and is refused where that does not fit."""

import tempfile
from pathlib import Path

import pytest
import torch

from posttrain.pipeline.execution.compatibility import refuse_incompatible
from posttrain.pipeline.execution.session import open_session
from posttrain.provenance.lineage.names import find_node
from posttrain.provenance.lineage.recalls import recall
from posttrain.stage.errors import UserError
from tests.quick import first_now

TASK = """
from posttrain.stage.spec import ArtifactKind, Port, Task
from models.config import Config
CHECKPOINT = ArtifactKind.CHECKPOINT
TASK = Task("models", Config, {"policy": Port(CHECKPOINT, "", optional=True),
    "teacher": Port(CHECKPOINT, "", optional=True, own_tokenizer=True)},
    {"policy": Port(CHECKPOINT, "")})
"""
CONFIG = """
from posttrain.stage.config import StageConfig
class Config(StageConfig):
    word: str = "a"
    label: str = ""
    since: int = 0
    def beyond_device(self, capability):
        found = capability() if self.since else None
        if self.since and (found is None or found < (self.since, 0)):
            return f"since {self.since} is beyond {found}"
"""
STAGE = """
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
def run(config, inputs, outputs, context):
    folder = outputs["policy"]
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_text(config.word + config.label)
    tokenizer = Tokenizer(WordLevel({config.word: 0}, unk_token=config.word))
    tokenizer.save(str(folder / "tokenizer.json"))
    return {}
"""
FLOW = """
from models import TASK
def declare(build):
    base = build.stage("base", TASK)
    other = build.stage("other", TASK)
    tuned = build.stage("tuned", TASK, policy=base["policy"])
    build.stage("taught", TASK, policy=tuned["policy"], teacher=other["policy"])
"""


@pytest.fixture
def zoo(toy, monkeypatch):
    files = {"__init__": TASK, "config": CONFIG, "stage": STAGE}
    for name, text in files.items():
        toy.write(f"models/{name}.py", text)
    toy.write("zoo/__init__.py", "")
    toy.write("zoo/dag.py", FLOW)
    monkeypatch.syspath_prepend(str(toy.root))
    toy.recipe("flow: zoo.dag\nrun: {threads: 1, retries: 0}\n")
    return toy


def check(zoo, *overrides):
    with open_session(zoo.root, overrides) as session:
        refuse_incompatible(session.planner, session.planner.plan())


def test_models_carry_their_parts_and_must_fit(zoo):
    made = zoo.run("other.word=b")
    with open_session(zoo.root) as session:
        digests = {name: run.outputs[0].digest for name, run in made.items()}
        parts = session.ledger.compositions.parts_of(list(digests.values()))
        held = {name: parts[digest][0].digest for name, digest in digests.items()}
        assert held["base"] == held["tuned"] == held["taught"] != held["other"]

    with pytest.raises(UserError, match="stage 'tuned': its input 'policy' and its output"):
        zoo.run("other.word=b", "tuned.word=b")
    kept = zoo.root / "data/tuned/policy/model.safetensors"
    assert kept.read_text() == "a"


@pytest.mark.slow
def test_a_recalled_tokenizer_stops_the_plan_and_whatever_writes_it_again(zoo):
    zoo.run()
    with open_session(zoo.root) as session:
        name = "data/base/policy#tokenizer"
        node = find_node(session.ledger, name, root=zoo.root, cwd=zoo.root)
        recall(session.ledger, node, reason="loses digits")
    with pytest.raises(UserError, match=r"policy#tokenizer.*loses digits"):
        check(zoo)
    # Its key is new, so only its bytes can tell; they are never published.
    with pytest.raises(UserError, match=r"data/base/policy#tokenizer: it was recalled"):
        zoo.run("base.label=x")
    assert (zoo.root / "data/base/policy/model.safetensors").read_text() == "a"


@pytest.mark.parametrize("command", first_now(["run", "plan", "stage run base"]))
def test_outputs_on_another_file_system_are_refused_before_anything_runs(zoo, command):
    """They are put in their place by a rename, which would fail after all work of a stage."""
    elsewhere = Path("/dev/shm")
    if not elsewhere.is_dir() or elsewhere.stat().st_dev == zoo.root.stat().st_dev:
        pytest.skip("there is one file system here")
    assert zoo.cli("compile").returncode == 0
    with tempfile.TemporaryDirectory(dir=elsewhere) as folder:
        (zoo.root / "data").symlink_to(folder)
        done = zoo.cli(*command.split())
        assert done.returncode == 2
        said = " ".join(done.stderr.split())
        assert said.startswith("error: stage 'base': ")
        assert "are on different file systems, and outputs are put in their place by" in said
        assert not any(Path(folder).iterdir())


def test_what_the_device_has_no_kernels_for_is_refused_before_anything_runs(zoo, monkeypatch):
    with pytest.raises(UserError, match=r"^tuned: since 9 is beyond None$"):
        check(zoo, "tuned.since=9")
    # Of GPUs that are not here a plan says nothing; of several, all must have the kernels.
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    check(zoo, "tuned.since=9", "run.device=cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_capability", [(9, 0), (8, 6)].__getitem__)
    with pytest.raises(UserError, match=r"^tuned: since 9 is beyond \(8, 6\)$"):
        check(zoo, "tuned.since=9", "run.device=cuda")
    check(zoo, "tuned.since=8", "run.device=cuda")
