"""What changes no byte is in no key; the seed counts by its value, however it was computed."""

from typing import Annotated

from posttrain.learning.rl.config import RlConfig
from posttrain.learning.training.config import TrainingConfig
from posttrain.pipeline.recipe import RunSettings
from posttrain.stage.config import UNKEYED, StageConfig


class Inner(StageConfig):
    rate: float = 0.5
    every: Annotated[int, UNKEYED] = 3


class Outer(StageConfig):
    inner: Inner = Inner()
    several: tuple[Inner, ...] = (Inner(),)
    by_name: dict[str, Inner] = {"a": Inner()}
    shown: Annotated[bool, UNKEYED] = False


def test_marked_fields_are_left_out_at_any_depth():
    assert Outer().keyed() == {
        "inner": {"rate": 0.5},
        "several": [{"rate": 0.5}],
        "by_name": {"a": {"rate": 0.5}},
    }
    assert Outer().model_dump()["inner"]["every"] == 3


def test_how_often_checkpoints_are_written_is_in_no_key():
    for config in (TrainingConfig, RlConfig):
        assert "checkpoint_every" in config.model_fields
    few, many = TrainingConfig(checkpoint_every=5), TrainingConfig(checkpoint_every=50)
    assert few.keyed() == many.keyed()
    assert few.keyed().keys() < few.model_dump().keys()


def test_only_what_can_change_bytes_of_the_run_is_in_a_key():
    settings = RunSettings(level="L2", timeout_minutes=1, stall_minutes=1, retries=4)
    assert settings.keyed() == RunSettings().keyed()
    assert {"seed", "threads", "device"} <= settings.keyed().keys()
    assert not {"level", "retries", "resources"} & settings.keyed().keys()


def test_a_level_or_a_limit_re_runs_nothing(toy):
    toy.run()
    decisions = toy.plan("run.level=L1", "run.timeout_minutes=3", "run.retries=5").values()
    assert {each.action for each in decisions} == {"cached"}


def test_the_seed_of_a_stage_counts_by_value(toy, monkeypatch):
    toy.run()
    monkeypatch.setattr("posttrain.pipeline.stage_keys.derived_seed", lambda seed, purpose: 12345)
    first = toy.plan()["first"]
    assert first.action == "run"
    assert first.reasons[0].startswith("stage_seed changed from ")


def test_how_a_stage_is_called_is_in_its_key(toy):
    code = toy.run()["first"].components["code"]
    for symbol in ("call:perform", "call:set_up"):
        assert f"posttrain.pipeline.execution.{symbol}" in code
    assert "posttrain.pipeline.determinism:make_deterministic" in code
    assert not any("log" in symbol.lower() and ":" in symbol for symbol in code)
