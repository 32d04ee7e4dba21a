"""A stage that an older version recorded is replayed with its parameters in today's spelling."""

import json
from types import SimpleNamespace

import pytest

from posttrain.cli.replay import _say
from posttrain.publishing.release.replays import _replay, replay_in
from posttrain.publishing.reproduction.replaying import ReplayOutcome, recorded_config
from posttrain.stage.errors import UserError

OLD = {"algorithm": {"ratio": {"surrogate": "clip", "low": 0.1}}, "learning_rate": 0.5}
FLAT = {
    "algorithm.ratio.surrogate": '"clip"',
    "algorithm.ratio.low": "0.1",
    "learning_rate": "0.5",
}


def record(params):
    components = {"params": params, "code": {}}
    return SimpleNamespace(task="tasks.rl", stage="again", run_id="r1", components=components)


def assert_is_read(config):
    assert (config.algorithm.surrogate.kind, config.algorithm.surrogate.low) == ("clip", 0.1)
    assert config.optimization.learning_rate == 0.5


def test_parameters_that_0_1_recorded_are_read():
    assert_is_read(recorded_config(record(FLAT)))


def test_a_parameter_that_was_never_one_is_refused():
    with pytest.raises(UserError, match=r"again of run r1 has .* \(again\.nosuch: .*commit"):
        recorded_config(record({"nosuch": "1"}))


def test_a_plug_in_whose_file_is_gone_is_named():
    gone = record(FLAT | {"algorithm.ratio.surrogate": '"mine"'})
    gone.components["code"] = {"gone_plugin.losses:Mine": "digest"}
    with pytest.raises(UserError, match=r"again of run r1 .*No module named 'gone_plugin'.*commit"):
        recorded_config(gone)


def test_the_verdict_says_which_digest_is_of_the_weights_and_which_of_the_files():
    weights, files = "a" * 64, "b" * 64
    said = _say(ReplayOutcome("s1", "rl", "r1", weights, weights, files, "data/rl/policy"))
    assert said.splitlines()[:3] == [
        f"rl of run r1: data/rl/policy, whose files are {'b' * 12}",
        f"  stored weights    {weights}",
        f"  replayed weights  {weights}",
    ]


def test_a_release_of_0_1_is_replayed_in_todays_spelling(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr("posttrain.pipeline.determinism.make_deterministic", lambda *given: None)
    monkeypatch.setattr("tasks.rl.replay.replay", lambda config, *given: seen.append(config))
    runtime = {"seed": "0", "threads": "1", "device": "cpu"}
    settings = {"stage": "rl", "task": "tasks.rl", "params": OLD, "runtime": runtime}
    (tmp_path / "replay.json").write_text(json.dumps(settings))
    _replay(tmp_path)
    (config,) = seen
    assert_is_read(config)


def test_a_release_of_0_1_is_replayed_by_its_own_module(tmp_path):
    package = tmp_path / "posttrain/release"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()
    (package / "replays.py").write_text("import sys\nprint('weights of', sys.argv[1])\n")
    contents = SimpleNamespace(names=list)
    where = tmp_path / ".posttrain/replays/rl"
    assert replay_in(tmp_path, contents, "rl") == f"weights of {where}"
