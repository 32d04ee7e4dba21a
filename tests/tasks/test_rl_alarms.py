"""An alarm that stops RL keeps what there is, and the run goes on from there once it is lifted."""

import polars as pl
import pytest

from posttrain.learning.rl.learner import PolicyLearner
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from tasks.rl.config import RlStageConfig
from tasks.rl.stage import run

# Without a penalty, and at such a rate, the policy is soon sure of one answer.
COLLAPSING = {
    "steps": 8,
    "problems_per_step": 6,
    "group_size": 4,
    "max_tokens": 8,
    "optimization": {"optimizer": "adamw", "learning_rate": 0.03, "warmup_steps": 0},
    "checkpoint_every": 0,
}
OUTPUTS = ("policy", "rollouts", "curve", "report")


def alarms(does):
    return {"entropy_collapse": {"does": does, "steps": 2, "share": 0.5}}


def train(inputs, folder, notes, **more):
    folder.mkdir(exist_ok=True)

    def emit(event):
        if event["kind"] == "note":
            notes.append(event["line"])

    scratch = folder / "scratch"
    scratch.mkdir(exist_ok=True)
    context = StageContext(seed=0, threads=1, device="cpu", scratch=scratch, emit=emit)
    run(RlStageConfig(**COLLAPSING | more), inputs, {n: folder / n for n in OUTPUTS}, context)
    return {name: (folder / name).read_bytes() for name in ("rollouts", "curve")}


def test_a_collapse_stops_the_run_until_the_alarm_is_lifted(
    guesser, coins_path, tmp_path, monkeypatch
):
    inputs, notes = {"policy": guesser, "problems": coins_path}, []
    whole = train(inputs, tmp_path / "whole", notes, alarms={})
    entropy = pl.read_parquet(tmp_path / "whole" / "curve").filter(metric="rl/entropy")["value"]
    # The fault is there: two steps in a row below half of what the first two were.
    at = next(n for n in range(4, 9) if max(entropy[n - 2 : n]) < sum(entropy[:2]) / 4)
    assert at < 8

    calls, update = [], PolicyLearner.update

    def counted(self, samples, **where):
        calls.append(where["step"])
        return update(self, samples, **where)

    monkeypatch.setattr(PolicyLearner, "update", counted)
    said = rf"the entropy was below .* stopped the run after step {at} of 8, with rollouts and a ch"
    cut = tmp_path / "cut"
    with pytest.raises(UserError, match=said):
        train(inputs, cut, notes, alarms=alarms("stop"))
    assert calls == list(range(at))
    shards = [pl.read_parquet(path) for path in (cut / "scratch" / "rollouts").iterdir()]
    assert pl.concat(shards)["step"].unique().sort().to_list() == list(range(1, at + 1))
    # As it is, it ends at once; lifted, it goes on, to the same bytes as without an alarm.
    with pytest.raises(UserError, match=said):
        train(inputs, cut, notes, alarms=alarms("stop"))
    assert calls == list(range(at))
    assert train(inputs, cut, notes, alarms=alarms("warn")) == whole
    assert calls == list(range(8))


def test_answers_that_are_cut_off_are_warned_of_once(guesser, coins_path, tmp_path):
    notes = []
    inputs = {"policy": guesser, "problems": coins_path}
    config = {"max_tokens": 2, "alarms": {"truncation": {"steps": 2}}}
    train(inputs, tmp_path, notes, steps=3, **config)
    told = [note for note in notes if "cut off" in note]
    assert told == [
        "rl.alarms.truncation: more than 50% of the answers were cut off in each of the last 2"
        " steps, 79% in the last"
    ]
