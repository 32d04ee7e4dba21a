"""What counts as an input from outside, and under which name it is licensed."""

import json
from types import SimpleNamespace

import pytest

from posttrain.provenance.ledger import ArtifactRecord, StageRun
from posttrain.publishing.release import inputs as inputs_module
from posttrain.publishing.release.candidate import GatesFailed, ReleaseCandidate
from posttrain.publishing.release.chain import Chain
from posttrain.publishing.release.config import LicenseGate
from posttrain.publishing.release.inputs import outside_inputs
from posttrain.publishing.release.licenses import StatedLicense, stated_at_hub, stated_in


def stage(task, /, *files, **params):
    stated = {key: json.dumps(value) for key, value in params.items()}
    records = tuple(ArtifactRecord(role, "source", path, digest, 1) for role, path, digest in files)
    components = {"params": stated}
    return StageRun(
        task, "run", task, f"tasks.{task}", "key", "succeeded", 0.0, 1.0,
        inputs=records, components=components,
    )  # fmt: skip


def inputs(*stages, **licenses):
    return [
        (each.name, each.origin, each.license)
        for each in outside_inputs(stages, {k.replace("__", "."): v for k, v in licenses.items()})
    ]


def test_models_that_wrote_or_graded_are_inputs():
    judge = {"endpoint": {"model": "grader", "base_url": "http://secret.example/v1"}}
    source = {"kind": "jsonl", "name": "own", "path": "own.jsonl", "judge": judge}
    run = stage(
        "synthesize",
        ("files.own", "own.jsonl", "d1"),
        sources=[source],
        **{"teacher.endpoint.model": "writer"},
    )
    assert inputs(run, own="MIT", writer="Apache-2.0") == [
        ("grader", "judge behind an endpoint", "unknown"),
        ("own", "file own.jsonl", "MIT"),
        ("writer", "teacher behind an endpoint", "Apache-2.0"),
    ]


def test_two_models_of_one_name_are_two_inputs():
    policy = stage("import_model", ("files.model", "models/a", "d1"))
    reward = stage("import_reward_model", ("files.model", "models/b", "d2"))
    again = stage("teacher_model", ("files.model", "models/a", "d1"))
    assert inputs(policy, reward, import_model__model="MIT") == [
        ("import_model.model", "file a", "MIT"),
        ("import_reward_model.model", "file b", "unknown"),
    ]
    # The same bytes read twice are one.
    assert inputs(policy, again, model="MIT") == [("model", "file a", "MIT")]


def test_a_model_of_the_hub_is_an_input_with_its_commit():
    run = stage("import_model", name="org/model", revision="c" * 40)
    assert inputs(run) == [("org/model", f"hub org/model at {'c' * 40}", "unknown")]


def test_the_gate_names_the_model_that_nobody_licensed():
    run = stage("synthesize", sources=[], **{"teacher.endpoint.model": "writer"})
    evidence = SimpleNamespace(inputs=lambda: outside_inputs([run], {}))
    verdict = LicenseGate(name="l", kind="license").check(evidence)
    assert not verdict.passed
    assert "nothing says the license of 'writer' (teacher behind an endpoint" in verdict.remedy


def test_the_gate_names_all_that_nobody_licensed_and_what_to_write():
    runs = [
        stage("import_chats", ("files.chats", "../chats.jsonl", "d1")),
        stage("import_model", ("files.model", "../tiny", "d2")),
    ]
    evidence = SimpleNamespace(inputs=lambda: outside_inputs(runs, {}))
    assert (
        "the license of 'chats' (file chats.jsonl, read by import_chats), 'model' (file tiny, read"
        " by import_model); state it in recipe.yaml: release: {licenses: {chats: SPDX-ID, model:"
        " SPDX-ID}}" in LicenseGate(name="l", kind="license").check(evidence).remedy
    )


def test_inputs_outside_of_the_project_are_told_together_and_before_anything_is_written(tmp_path):
    (tmp_path / "mine/data").mkdir(parents=True)
    runs = [
        stage("import_chats", ("files.chats", "../chats.jsonl", "d1")),
        stage("import_words", ("files.words", "words.txt", "d2")),
        stage("import_model", ("files.model", "../tiny", "d3")),
    ]
    recipe = SimpleNamespace(directory=tmp_path / "mine")
    made = Chain(recipe, tmp_path / "mine", runs, None, None, {})
    assert made.elsewhere() == ["../chats.jsonl", "../tiny"]
    # No gate is asked here, as what is refused is no question of figures.
    candidate = ReleaseCandidate(None, None, SimpleNamespace(chain=made), ())
    with pytest.raises(GatesFailed, match=r"rebuild from it: \.\./chats\.jsonl, \.\./tiny; copy"):
        candidate.require_passed()


def card(folder, **head):
    folder.mkdir(parents=True)
    lines = [f"{name}: {json.dumps(value)}" for name, value in head.items()]
    (folder / "README.md").write_text("\n".join(["---", *lines, "---", "# A model", ""]))
    return folder


def imported(folder):
    return stage("import_model", ("files.model", "models/mine", "d1")), lambda _record: folder


def test_a_model_states_its_license_itself_and_the_recipe_has_the_last_word(tmp_path):
    run, find = imported(card(tmp_path / "mine", license="apache-2.0"))
    assert [each.license for each in outside_inputs([run], {}, find)] == ["Apache-2.0"]
    # What holds for all that state none themselves leaves it alone.
    assert [each.license for each in outside_inputs([run], {"*": "MIT"}, find)] == ["Apache-2.0"]
    assert [each.license for each in outside_inputs([run], {"model": "MIT"}, find)] == ["MIT"]


@pytest.mark.parametrize(
    ("head", "license"),
    [
        ({"license": "llama3"}, "llama3"),
        ({"license": "other", "license_name": "qwen-research"}, "qwen-research"),
        ({"license": "other"}, "unknown"),
        ({"license": ["mit", "cc-by-4.0"]}, "MIT AND CC-BY-4.0"),
        ({"tags": ["a"]}, "unknown"),
    ],
)
def test_what_a_card_may_state(tmp_path, head, license):
    assert stated_in(card(tmp_path / "mine", **head)).license == license


def test_a_card_without_a_head_states_nothing(tmp_path):
    (tmp_path / "README.md").write_text("---\nlicense: [\n---\n")
    assert stated_in(tmp_path) == StatedLicense()
    (tmp_path / "README.md").write_text("# mine\n")
    assert stated_in(tmp_path) == StatedLicense()
    assert stated_in(tmp_path / "nowhere") == StatedLicense()


def test_a_gate_may_ask_for_the_licenses_of_parents(tmp_path, monkeypatch):
    # The hub's cache has the card of the first parent, which names another and itself.
    cache = {
        "org/base": card(tmp_path / "base", license="mit", base_model=["org/root", "org/base"])
    }
    monkeypatch.setattr(
        inputs_module,
        "stated_at_hub",
        lambda name, _revision: stated_in(cache[name]) if name in cache else StatedLicense(),
    )
    run, find = imported(card(tmp_path / "mine", license="mit", base_model="org/base"))
    found = outside_inputs([run], {}, find)
    assert [(each.name, each.origin, each.license) for each in found] == [
        ("model", "file mine", "MIT"),
        ("org/base", "base of model", "MIT"),
        ("org/root", "base of org/base", "unknown"),
    ]
    assert LicenseGate(name="l", kind="license", allowed=("MIT",)).decide(found).passed
    strict = LicenseGate(name="l", kind="license", allowed=("MIT",), parents=True)
    refused = strict.decide(found)
    assert not refused.passed
    assert refused.figures == {"inputs": 3.0, "unknown": 1.0, "not_allowed": 0.0}
    assert "nothing says the license of 'org/root' (base of org/base" in refused.remedy
    assert strict.decide(outside_inputs([run], {"org/root": "mit"}, find)).passed


def test_a_card_in_the_hubs_cache_is_read_without_a_network(tmp_path, monkeypatch):
    commit = "c" * 40
    kept = tmp_path / "models--org--model"
    card(kept / "snapshots" / commit, license="mit")
    (kept / "refs").mkdir()
    (kept / "refs/main").write_text(commit)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.file_download.constants.HF_HUB_CACHE", str(tmp_path))
    assert stated_at_hub("org/model", commit).license == "MIT"
    assert stated_at_hub("org/model", None).license == "MIT"
    assert stated_at_hub("org/other", None) == StatedLicense()
    assert stated_at_hub("no such/na/me", None) == StatedLicense()
