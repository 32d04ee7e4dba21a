"""RL over episodes that branch, and over calls that are drawn again: rows, counts, replay."""

from typing import ClassVar, Literal

import polars as pl
import pytest

from posttrain.data.schemas import CURVE, ROLLOUTS
from posttrain.data.tables import read_table
from posttrain.learning.models.load import load_policy, weights_digest
from posttrain.learning.rl.replay import replay
from posttrain.stage.context import StageContext
from tasks.rl.config import RlStageConfig
from tasks.rl.stage import run
from tests.learning.episodes.environments import Counting

OUTPUTS = ("policy", "rollouts", "curve", "report")


def test_a_run_whose_episodes_branch_is_counted_resampled_and_replayed_alike(
    guesser, coins_path, tmp_path
):
    config = RlStageConfig(
        steps=2,
        problems_per_step=4,
        group_size=6,
        max_tokens=4,
        optimization={"optimizer": "adamw", "learning_rate": 5e-3, "warmup_steps": 0},
        producer={
            "kind": "episodes",
            "environment": Counting(rounds=1),
            "branching": {"kind": "entropy_rise", "chance": 0.9},
        },
        checkpoint_every=0,
    )
    runs = []
    for name in ("first", "again"):
        outputs = {each: tmp_path / name / each for each in OUTPUTS}
        (tmp_path / name).mkdir()
        inputs = {"policy": guesser, "problems": coins_path}
        run(config, inputs, outputs, StageContext.quiet(tmp_path / name / "scratch", seed=3))
        runs.append(outputs)
    rows, again = (read_table(each["rollouts"], ROLLOUTS) for each in runs)
    assert rows.equals(again)
    assert set(rows.group_by("step", "group").len()["len"]) == {6}
    branched = rows.filter(pl.col("shared") > 0)
    # Three of six begin at once, and nearly each has a branch behind its first turn.
    assert len(branched) > 2 * 4
    assert branched["episode"].str.contains("<").all()
    curve = read_table(runs[0]["curve"], CURVE)
    for (step,), part in rows.group_by("step"):
        found = dict(curve.filter(step=step).select("metric", "value").iter_rows())
        drawn = part["logprobs"].list.len().sum() - part["shared"].sum()
        assert found["rl/tokens_drawn"] == drawn
        assert found["rl/branched"] == pytest.approx((part["shared"] > 0).mean())
        assert found["rl/logprob_gap"] < 1e-5
    context = StageContext.quiet(tmp_path / "replay", seed=3)
    found = replay(config, {"policy": guesser}, runs[0]["rollouts"], context)
    assert found == weights_digest(load_policy(runs[0]["policy"]).model)


class Picky(Counting):
    """Refuse what does not end in 1, and count it."""

    kind: Literal["picky"] = "picky"
    JUDGES: ClassVar[bool] = True

    def start(self, problem, seed):
        return super().start(problem, 0)._replace(key="first")

    def step(self, state, acts, seed):
        refused = float(not acts[0].text.strip().endswith("1"))
        return super().step(state, acts, 0)._replace(key="later", facts={"tool_errors": refused})


def test_calls_that_failed_are_drawn_again_and_replayed_alike(guesser, coins_path, tmp_path):
    config = RlStageConfig(
        steps=2,
        problems_per_step=4,
        group_size=6,
        max_tokens=8,
        optimization={"optimizer": "adamw", "learning_rate": 5e-3, "warmup_steps": 0},
        producer={"kind": "episodes", "environment": Picky(rounds=2), "step_tries": {"redrawn": 3}},
        draw={"select": {"kind": "clean_calls", "share": 0.0}},
        algorithm={"regularizers": {"imitation": {"kind": "imitation", "coefficient": 0.01}}},
        checkpoint_every=0,
    )
    outputs = {each: tmp_path / each for each in OUTPUTS}
    inputs = {"policy": guesser, "problems": coins_path}
    run(config, inputs, outputs, StageContext.quiet(tmp_path / "scratch", seed=3))
    rows = read_table(outputs["rollouts"], ROLLOUTS)
    episodes, tries = rows.filter(role="policy"), rows.filter(role="step")
    assert set(episodes.group_by("step", "group").len()["len"]) == {6}
    # No more calls a step than problems, each drawn six times; what they share was read.
    calls = tries.group_by("step", "peers").len()
    assert 0 < len(calls) <= 2 * 4
    assert calls["len"].max() <= 6
    assert set(tries["spans"].list.len()) == {2}
    assert tries["logprobs"].list.len().max() <= 8
    for row in tries.to_dicts():
        assert [turn["earned"] for turn in row["turns"]] == [float(row["text"].strip()[-1:] == "1")]
    assert tries["trained"].all()
    refused = [row["facts"][0]["value"] for row in episodes.to_dicts()]
    assert episodes["trained"].to_list() == [not each for each in refused]
    curve = read_table(outputs["curve"], CURVE)
    assert curve.filter(metric="rl/logprob_gap")["value"].max() < 1e-5
    context = StageContext.quiet(tmp_path / "replay", seed=3)
    found = replay(config, {"policy": guesser}, outputs["rollouts"], context)
    assert found == weights_digest(load_policy(outputs["policy"]).model)
