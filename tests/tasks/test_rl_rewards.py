"""Several components pay a real run: each is a column and a curve, and alarms are notes."""

import math
from dataclasses import replace

import pytest

from posttrain.data.schemas import CURVE, ROLLOUTS
from posttrain.data.tables import read_table
from posttrain.stage.context import StageContext
from tasks.rl.config import RlStageConfig
from tasks.rl.stage import run

CONFIG = {
    "steps": 11,
    "problems_per_step": 4,
    "group_size": 4,
    "max_tokens": 8,
    "optimization": {"optimizer": "adamw", "learning_rate": 5e-3, "warmup_steps": 0},
    "checkpoint_every": 0,
    "reward": {
        "components": {
            "correct": "verifier",
            "brief": {"kind": "group_length", "when": "correct"},
            "near": {"kind": "target_length", "target": 4},
            "never": {"kind": "format", "pattern": "nobody writes this"},
        },
        "combine": {"kind": "sum", "weights": {"near": {"from": 0.5, "to": 0.25, "over": 10}}},
        "bonus_may_outweigh": True,
    },
}


@pytest.fixture(scope="module")
def ran(guesser, coins_path, tmp_path_factory):
    folder = tmp_path_factory.mktemp("rl")
    told = []
    context = replace(StageContext.quiet(folder / "scratch"), emit=told.append)
    outputs = {name: folder / name for name in ("policy", "rollouts", "curve", "report")}
    inputs = {"policy": guesser, "problems": coins_path}
    run(RlStageConfig(**CONFIG), inputs, outputs, context)
    notes = [each["line"] for each in told if each["kind"] == "note"]
    return read_table(outputs["rollouts"], ROLLOUTS), read_table(outputs["curve"], CURVE), notes


def test_the_reward_is_the_sum_of_the_columns_with_the_weights_of_the_step(ran):
    rollouts, _, _ = ran
    for row in rollouts.iter_rows(named=True):
        scores = {each["name"]: each["value"] for each in row["components"]}
        weight = 0.5 - 0.25 * min(1.0, (row["step"] - 1) / 10)
        hand = scores["correct"] + scores["brief"] + weight * scores["near"] + scores["never"]
        assert row["reward"] == pytest.approx(hand)
        assert row["solved"] == (scores["correct"] == 1.0)
    assert rollouts["reward"].n_unique() > 4


def test_each_component_is_a_curve_of_its_mean_and_deviation(ran):
    rollouts, curve, _ = ran
    first = rollouts.filter(step=1)
    near = [each["value"] for row in first["components"] for each in row if each["name"] == "near"]
    mean = math.fsum(near) / len(near)
    spread = math.sqrt(math.fsum((each - mean) ** 2 for each in near) / len(near))
    measured = dict(curve.filter(step=1).select("metric", "value").iter_rows())
    assert measured["rl/reward/near"] == pytest.approx(mean)
    assert measured["rl/reward/near/deviation"] == pytest.approx(spread)
    assert measured["rl/reward/near/unjudged"] == 0.0


def test_a_component_that_is_one_number_for_ten_steps_is_told_once(ran):
    _, _, notes = ran
    told = [note for note in notes if "gave all answers of the last 10 steps one score" in note]
    assert told == [
        "reward component 'never' gave all answers of the last 10 steps one score, so it teaches"
        " nothing there"
    ]
