"""`posttrain replay` and `verify` in a project whose real stages are preferences and RL."""

import json
import math
import re
import shutil
from pathlib import Path

import pytest
import torch

from posttrain.learning.models.load import load_policy, weights_digest
from posttrain.provenance.key import nested
from posttrain.stage.context import StageContext
from tasks.probe.config import ProbeConfig
from tasks.probe.stage import run as probe

ROOT = Path(__file__).parents[2]
GIVEN_TASK = """
from posttrain.stage.spec import ArtifactKind, Port, Task
from given.config import Config
TASK = Task("given", Config, {}, {
    "policy": Port(ArtifactKind.CHECKPOINT, "a policy"),
    "problems": Port(ArtifactKind.PROBLEMS, "problems"),
    "samples": Port(ArtifactKind.COMPLETIONS, "judged samples"),
    "solve_rates": Port(ArtifactKind.SOLVE_RATES, "their solve rates"),
})
"""
GIVEN_CONFIG = """
from posttrain.stage.config import StageConfig
class Config(StageConfig):
    folder: str
    '''Where the artifacts lie.'''
"""
GIVEN_STAGE = """
import shutil
from pathlib import Path
def run(config, inputs, outputs, context):
    for name, path in outputs.items():
        source = Path(config.folder) / name
        shutil.copytree(source, path) if source.is_dir() else shutil.copyfile(source, path)
"""
FLOW = """
from given import TASK as GIVEN
from tasks.preference import TASK as PREFERENCE
from tasks.rl import TASK as RL
def declare(build):
    given = build.stage("given", GIVEN)
    build.stage("preference", PREFERENCE, policy=given["policy"], samples=given["samples"])
    build.stage("rl", RL, **{role: given[role] for role in ("policy", "problems", "solve_rates")})
"""
RECIPE = """
flow: flowsofrl.only
run: {{threads: 1, retries: 0, seed: 5}}
given: {{folder: {folder}, declares: {{reads: [{folder}]}}}}
preference: {{steps: 4, batch_tokens: 300, sampling: {{max_tokens: 8}}}}
rl:
  steps: 3
  problems_per_step: 4
  group_size: 4
  max_tokens: 8
  staleness: 1
  draw: {{sources: {{up: 1.0, down: 3.0}}}}
  optimisation: {{epochs: 2, minibatches: 2, warmup_steps: 0}}
"""


@pytest.fixture
def project(toy, guesser, coins_path, tmp_path_factory):
    folder = tmp_path_factory.mktemp("given")
    shutil.copytree(guesser, folder / "policy")
    shutil.copyfile(coins_path, folder / "problems")
    probed = {name: folder / name for name in ("samples", "solve_rates")}
    given = {"policy": guesser, "problems": coins_path}
    probe(ProbeConfig(max_tokens=8), given, probed, StageContext.quiet(folder / "scratch"))
    for path, text in {
        "given/__init__.py": GIVEN_TASK,
        "given/config.py": GIVEN_CONFIG,
        "given/stage.py": GIVEN_STAGE,
        "flowsofrl/__init__.py": "",
        "flowsofrl/only.py": FLOW,
    }.items():
        toy.write(path, text)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "tasks", toy.root / "tasks", ignore=ignored)
    toy.recipe(RECIPE.format(folder=folder))
    toy.run()
    return toy


@pytest.mark.slow
def test_replay_finds_a_run_and_gives_a_verdict(project):
    done = project.cli("replay", "latest")
    assert done.returncode == 0, done.stderr
    policy = project.root / "data/rl/policy"
    digest = weights_digest(load_policy(policy).model)
    assert done.stdout.count(digest) == 2
    assert "equal: the stored rollouts alone lead to the same weights (L2)" in done.stdout

    # What is no longer in the workspace comes back from the cache, by content.
    shutil.rmtree(project.root / "data")
    again = project.cli("replay", "rl@latest", "--json")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["replayed"] == digest

    for name, message in (
        ("given@latest", "given@latest stores no rollouts to replay; name a stage such as"),
        ("rl@nosuch", "the ledger knows no run 'nosuch'"),
    ):
        refused = project.cli("replay", name)
        assert refused.returncode == 2
        assert message in refused.stderr

    shutil.rmtree(project.root / ".dvc/cache")
    gone = project.cli("replay", "latest")
    assert gone.returncode == 2
    assert "neither in the workspace nor in the DVC cache" in gone.stderr
    assert len(gone.stderr.strip().splitlines()) == 1


def verdict(done):
    assert done.returncode == 0, done.stderr + done.stdout
    return json.loads(done.stdout)


@pytest.mark.slow
def test_a_run_of_learners_holds_at_every_level(project):
    bytewise = verdict(project.cli("verify", "latest", "--level", "L0", "-o", "json"))
    assert bytewise["holds"]
    compared = {each["what"]: each for each in bytewise["findings"]}
    assert {"data/preference/policy", "data/rl/policy"} < {*compared}
    assert all(each["recorded"] == each["again"] for each in compared.values())

    replayed = verdict(project.cli("verify", "latest", "--level", "L2", "-o", "json"))
    (finding,) = replayed["findings"]
    assert finding["stage"] == "rl"
    assert finding["again"] == weights_digest(load_policy(project.root / "data/rl/policy").model)

    seeds = ("--seeds", "2", "--metric", "preference/margin", "--within", "5")
    told = verdict(project.cli("verify", "latest", "--level", "L3", *seeds, "-o", "json"))
    details = told["details"]
    first, second = details["values"].values()
    # Two seeds taught other pairs in another order.
    assert first != second
    assert details["low"] < min(first, second) <= max(first, second) < details["high"]
    assert told["holds"] == (details["low"] <= details["recorded"] <= details["high"])


@pytest.mark.slow
def test_a_batch_that_a_stage_failed_on_is_replayed_from_where_the_message_says(project, tmp_path):
    """A weight of the policy that the stages are given is not a number."""
    shutil.copytree(project.root / "data/given", tmp_path / "broken")
    for table in (tmp_path / "broken").glob("*.parquet"):
        table.rename(table.with_suffix(""))
    policy = load_policy(tmp_path / "broken/policy")
    with torch.no_grad():
        policy.model.model.norm.weight[3] = math.nan
    policy.model.save_pretrained(tmp_path / "broken/policy")
    folder = tmp_path / "broken"
    broken = f"given={{folder: {folder}, declares: {{reads: [{folder}]}}}}"
    failed = project.cli("run", "--local", "--set", broken)
    assert failed.returncode != 0
    said = " ".join(failed.stderr.split())
    kept = re.search(r"the batch is kept in (\S+\.safetensors)", said)
    assert kept, failed.stderr
    done = project.cli("replay", "--batch", kept[1])
    assert done.returncode == 1, done.stderr
    assert "the weight model.norm.weight is not finite" in done.stdout
    assert "the batch itself holds reference_2B, which is not finite" in done.stdout


def test_nested_parameters_come_back_from_their_dotted_names():
    flat = {"a": "1", 'b."c.d".e': "[1,2]", 'b."c.d".f': "null", "g": "{}"}
    assert nested(flat) == {"a": 1, "b": {"c.d": {"e": [1, 2], "f": None}}, "g": {}}


@pytest.mark.slow  # runs a recipe of three stages first
def test_rescore_pays_a_run_by_the_reward_of_the_recipe(project):
    done = project.cli("rescore", "--set", "rl.reward.truncated=fails")
    assert done.returncode == 0, done.stderr
    names = [line.split()[0] for line in done.stdout.splitlines() if line]
    assert names[:4] == ["component", "correct", "reward", "paid"]
    told = json.loads(project.cli("rescore", "--json").stdout)
    assert told["reward"] == told["paid"] | {"name": "reward"}
    # The limit goes by the policy, as in the run: this one says nothing, so 512.
    long = "{components: {correct: verifier, over: overlong_length}}"
    done = project.cli(
        "rescore", "--set", "rl.max_tokens=auto", "--set", f"rl.reward={long}", "--json"
    )
    assert done.returncode == 0, done.stderr
    (_, over) = json.loads(done.stdout)["components"]
    assert (over["name"], over["mean"]) == ("over", 0.0)
    refused = project.cli("rescore", "--stage", "given")
    assert refused.returncode == 2
    assert refused.stderr.endswith(
        "error: rescore: no stage 'given' writes rollouts; those that write rollouts: rl\n"
    )
    gone = project.cli("rescore", "--rollouts", "nothing.parquet")
    assert gone.returncode == 2
    assert "nothing.parquet is not there; run the recipe first" in gone.stderr
