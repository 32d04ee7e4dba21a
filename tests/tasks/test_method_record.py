"""What a checkpoint of RL must agree with, and what a report says of the method."""

import pytest

from posttrain.learning.algorithms.identity import digest
from posttrain.learning.rl.method_record import checkpoint_identity, method_in_report
from tasks.rl.config import RlStageConfig


@pytest.fixture
def inputs(tmp_path):
    for port in ("policy", "reference"):
        (tmp_path / port).mkdir()
        (tmp_path / port / "config.json").write_text("{}")
        (tmp_path / port / "model.safetensors").write_bytes(b"weights")
    (tmp_path / "problems").write_bytes(b"rows")
    return {port: tmp_path / port for port in ("policy", "reference", "problems")}


@pytest.mark.parametrize(
    ("changed", "moved"),
    [
        # Those of the policy are in its digest already.
        ("policy/model.safetensors", set()),
        ("policy/config.json", {"inputs.policy.files"}),
        ("reference/model.safetensors", {"inputs.reference.files"}),
        ("problems", {"inputs.problems"}),
    ],
)
def test_a_checkpoint_is_of_what_its_run_read(inputs, tmp_path, changed, moved):
    def identity():
        return checkpoint_identity(RlStageConfig(), inputs, seed=3, policies={"policy": "ab"})

    before = identity()
    assert (before["inputs.policy"], before["seed"]) == ("ab", "3")
    (tmp_path / changed).write_bytes(b"other")
    after = identity()
    assert {name for name in before | after if before.get(name) != after.get(name)} == moved


def test_a_report_names_algorithm_and_method():
    config = RlStageConfig(group_size=4)
    told = method_in_report(config)
    assert told["algorithm"]["digest"] == digest(config.algorithm)
    assert told["method"]["digest"] == digest(config) != digest(RlStageConfig())
    assert told["method"]["identity"]["group_size"] == 4
