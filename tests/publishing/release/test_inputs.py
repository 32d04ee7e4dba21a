"""What counts as an input from outside, and under which name it is licensed."""

import json
from types import SimpleNamespace

from posttrain.provenance.ledger import ArtifactRecord, StageRun
from posttrain.publishing.release.config import LicenseGate
from posttrain.publishing.release.inputs import outside_inputs


def stage(task, /, *files, **params):
    stated = {key: json.dumps(value) for key, value in params.items()}
    records = tuple(ArtifactRecord(role, "source", path, digest, 1) for role, path, digest in files)
    components = {"params": stated}
    return StageRun(
        task, "run", task, f"tasks.{task}", "key", "succeeded", 0.0, 1.0,
        inputs=records, components=components,
    )  # fmt: skip


def inputs(*stages, **licenses):
    chain = SimpleNamespace(stages=stages)
    return [
        (each.name, each.origin, each.license)
        for each in outside_inputs(chain, {k.replace("__", "."): v for k, v in licenses.items()})
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
    evidence = SimpleNamespace(chain=SimpleNamespace(stages=(run,)), licenses={})
    verdict = LicenseGate(name="l", kind="license").check(evidence)
    assert not verdict.passed
    assert "nothing says the license of 'writer' (teacher behind an endpoint" in verdict.remedy
