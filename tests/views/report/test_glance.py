"""What stands at the head of the page: when, how long, where, which model, by which way."""

import json
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import save_file

from posttrain.provenance.ledger.records import ArtifactRecord, Run, StageRun
from posttrain.views.report import StageFacts
from posttrain.views.report.glance import glance, learned_by, model_size

# 24 November 2026, 10:00 UTC.
RUN = Run(id="r", recipe="mine", started=1795514400.0, ended=1795514700.0, status="succeeded")
PARAMS = {
    "algorithm.advantage.kind": "group",
    "algorithm.advantage.baseline": "mean",
    "algorithm.advantage.scale": "none",
    "algorithm.surrogate.kind": "clip",
    "optimization.optimizer": "muon",
    "optimization.learning_rate": 0.0005,
    "steps": 200,
    "problems_per_step": 32,
    "group_size": 8,
    "epochs": None,
}
STAGE = StageRun(
    id="1", run_id="r", stage="rl", task="tasks.rl", key="k", status="succeeded", started=0.0,
    ended=90.0, host="bench", circumstances={"processor": "EPYC", "gpu": "H100"},
    components={"params": {name: json.dumps(value) for name, value in PARAMS.items()}},
)  # fmt: skip


@pytest.fixture
def checkpoint(tmp_path):
    weights = {"a": np.zeros((3, 5), np.float32), "b": np.zeros(7, np.float32)}
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    return tmp_path


def test_a_run_says_what_it_was(checkpoint):
    output = ArtifactRecord("policy", "checkpoint", "data/rl/policy", "d", 100, producer="rl")
    reused = replace(STAGE, stage="sft", status="cached", host="elsewhere", components={})
    facts = [StageFacts(reused, 30.0), StageFacts(replace(STAGE, outputs=(output,)), 90.0)]
    size = (checkpoint / "model.safetensors").stat().st_size
    said = glance(RUN, facts, {"rl.policy": checkpoint}, method="dapo", cost="2 GPU hours")
    assert said == {
        "run": "24 November 2026, 10:00 UTC",
        "duration": "5 min 0 s, 1 of 2 stages ran; 2 min 0 s of work in all stages",
        "machine": "bench: EPYC, H100",
        "cost": "2 GPU hours",
        "model": f"rl.policy: llama, 22 parameters ({size} B)",
        "method": "dapo",
        "rl": learned_by(STAGE),
    }


def test_an_algorithm_is_told_by_its_parts_and_its_main_numbers():
    assert learned_by(STAGE) == (
        "advantage group, baseline mean, surrogate clip, muon, learning rate 5e-4, 200 steps,"
        " 32 problems a step, 8 answers each"
    )
    assert learned_by(replace(STAGE, components={})) == ""


def test_what_is_not_known_is_left_out():
    assert glance(None, [], {}) == {"duration": "0.0 s of work in all stages"}


def test_a_folder_without_weights_has_no_size(tmp_path):
    assert model_size(tmp_path) == ""
