"""A release at L2 of a recipe with preference optimization and RL, and what its graph shows."""

import json
import sys

import pytest

from posttrain.publishing.release import keys
from posttrain.publishing.release.contents import ArchiveContents, FolderContents
from posttrain.publishing.release.rebuild import rebuild
from posttrain.publishing.release.verify import read_claims, verify_path

pytestmark = [pytest.mark.slow, pytest.mark.core, pytest.mark.timeout(900)]
RECIPE = """
flow: flows.post_training
run: {threads: 1, retries: 0, level: L2}
synthesize:
  sources:
  - {kind: jsonl, name: coins, path: coins.jsonl,
     columns: {prompt: question, answer: answer, solution: answer}}
curate: {problem_filters: {near_duplicates: null, contamination: {ngram: null}}}
pretrain: {steps: 140, hidden: 32, layers: 1, batch_tokens: 1024, vocab_size: 280}
sft: {steps: 2, batch_tokens: 512, learning_rate: 1e-4}
probe: {num_problems: 150, num_samples: 4, max_tokens: 16}
reward: {steps: 4, batch_tokens: 1024}
preference: {algorithm: {preset: dpo}, batch_tokens: 1024, steps: 4, sampling: {max_tokens: 16}}
rl: {steps: 2, problems_per_step: 8, max_tokens: 16}
evaluate: {num_samples: 4, pass_at: [1], max_tokens: 16}
release:
  policy: rl.policy
  licenses: {coins: CC0-1.0}
"""


def coins():
    """600 problems: the answer is 1 where the question says up, and 2 where it says down."""
    for index in range(300):
        for side, answer in (("up", "1"), ("down", "2")):
            yield {"question": f"{side} {index} =", "answer": f"{side} it is\n#### {answer}"}


@pytest.fixture(scope="module")
def coined(tmp_path_factory, start_project):
    """The release, and the key that signed it."""
    saved = list(sys.path)
    place = tmp_path_factory.mktemp("levels")
    keys.make_pair(place / "keys")
    project = start_project(place / "project", place / "keys")
    (project.root / "coins.jsonl").write_text("\n".join(map(json.dumps, coins())))
    project.recipe.write_text(RECIPE)
    project.run()
    project.commit("coins")
    made = project.create("coins")
    sys.path[:] = saved
    return made, keys.load_public(project.keys / "release.pub")


def test_stages_and_parts_are_in_the_graph_and_in_the_bill_of_materials(coined):
    made, key = coined
    assert verify_path(made.archive, key) == []
    graph = json.loads((made.folder / "release/lineage.json").read_text())
    types = {node["type"] for node in graph["nodes"]}
    parts = {"tokenizer", "template", "verifier"}
    assert parts | {"tasks.preference", "tasks.rl", "tasks.evaluate"} <= types
    bom = json.loads((made.folder / "release/bom.cdx.json").read_text())
    kinds = {each["bom-ref"].partition(":")[0] for each in bom["components"]}
    assert parts | {"rollouts", "pairs", "reward_model", "checkpoint"} <= kinds
    depends = {each["ref"]: each.get("dependsOn", []) for each in bom["dependencies"]}
    (policy,) = (ref for ref in depends["release:coins@v0.1.0"] if ref.startswith("checkpoint:"))
    assert {"tokenizer", "template"} <= {ref.partition(":")[0] for ref in depends[policy]}
    verifiers = next(ref for ref in depends if ref.startswith("verifiers:"))
    assert [ref for ref in depends[verifiers] if ref.startswith("verifier:")]
    card = (made.folder / "README.md").read_text()
    assert "| preference | tasks.preference |" in card


def test_the_learner_is_replayed_from_the_rollouts_that_the_release_carries(coined, tmp_path):
    made, key = coined
    claims, _ = read_claims(FolderContents(made.folder), key)
    done = rebuild(ArchiveContents(made.archive), claims, tmp_path / "again")
    assert done.level == "L2"
    weights = [each for each in done.comparisons if each.what == "weights"]
    assert [(each.stage, each.agrees, each.binding) for each in weights] == [("rl", True, True)]
    figures = [each for each in done.comparisons if each.what == "pass_at_1"]
    assert [(each.stage, each.agrees, each.binding) for each in figures] == [
        ("evaluate", True, True)
    ]
    # Bytes are shown stage by stage, and asked for at stricter levels only.
    shown = {each.stage: each.binding for each in done.comparisons if each.how == "digest"}
    assert shown.keys() == {
        *("synthesize", "curate", "pretrain", "sft", "probe", "reward"),
        *("preference", "rl", "evaluate"),
    }
    assert not any(shown.values())
    report = json.loads((tmp_path / "again/rebuild.json").read_text())
    assert report["agrees"] is True
    assert len(report["comparisons"]) == len(done.comparisons)
