"""The flat loop of examples/ does what the stage does, to the bit, on the library alone."""

import ast
import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from posttrain.learning.models.load import load_policy, weights_digest
from posttrain.stage.context import StageContext
from tasks.rl.config import RlStageConfig
from tasks.rl.stage import run

PATH = Path(__file__).parents[2] / "examples/rl_loop.py"


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("rl_loop", PATH)
    module = importlib.util.module_from_spec(spec)
    # A dataclass looks its module up.
    sys.modules["rl_loop"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("seed", [0, 7])
def test_the_flat_loop_ends_with_the_weights_of_the_stage(
    example, guesser, coins, coins_path, tmp_path, seed
):
    settings = replace(example.Settings(), steps=6, seed=seed)
    policy = load_policy(guesser)
    history = example.train(policy, coins, settings)
    config = RlStageConfig(
        steps=6,
        problems_per_step=settings.problems_per_step,
        group_size=settings.group_size,
        max_tokens=settings.max_tokens,
        optimization={"learning_rate": settings.learning_rate},
        checkpoint_every=0,
    )
    names = ("policy", "rollouts", "curve", "report")
    outputs = {name: tmp_path / name for name in names}
    given = {"policy": guesser, "problems": coins_path}
    run(config, given, outputs, StageContext.quiet(tmp_path / "scratch", seed=seed))
    found = weights_digest(load_policy(outputs["policy"]).model)
    assert found == weights_digest(policy.model)
    assert found != weights_digest(load_policy(guesser).model)
    assert len(history) == 6


def test_it_runs_by_itself_and_learns(example, capsys):
    example.main()
    rewards = [float(line.split()[-1]) for line in capsys.readouterr().out.splitlines()[:-1]]
    assert sum(rewards[-3:]) / 3 > sum(rewards[:3]) / 3 + 0.1


def test_it_is_short_and_stands_on_the_library_alone():
    text = PATH.read_text()
    assert len(text.splitlines()) <= 250
    modules = {n.module for n in ast.walk(ast.parse(text)) if isinstance(n, ast.ImportFrom)}
    ours = {name for name in modules if name.startswith(("posttrain", "tasks", "flows"))}
    rooms = ("posttrain.learning.", "posttrain.data.", "posttrain.stage.")
    assert all(name.startswith(rooms) for name in ours)
