"""Runs of RL on the coin guesser that are held to each other's bits, whole, killed and gone on."""

import random

import pytest
import torch

from posttrain.data.schemas import CURVE
from posttrain.data.tables import read_table
from posttrain.learning.models.load import load_policy, weights_digest
from posttrain.learning.rl.learner import PolicyLearner
from posttrain.stage.context import StageContext
from tasks.rl.config import RlStageConfig
from tasks.rl.stage import run


def trained_on_coins(said, policy, problems, folder):
    """Run RL; what it was given and wrote, the curve's values by metric, and the weights."""
    config = RlStageConfig.parse(said, where="rl")
    folder.mkdir(exist_ok=True)
    outputs = {name: folder / name for name in ("policy", "rollouts", "curve", "report")}
    inputs = {"policy": policy, "problems": problems}
    run(config, inputs, outputs, StageContext.quiet(folder / "scratch", seed=3))
    curve = read_table(outputs["curve"], CURVE)
    values = {name: part["value"].to_list() for (name,), part in curve.group_by("metric")}
    found = weights_digest(load_policy(outputs["policy"]).model)
    return (config, inputs, outputs), values, found


def killed_before_an_update(train, at, monkeypatch):
    """Train until the update of that step and place, then again: the updates since, and the end."""
    calls, update, due = [], PolicyLearner.update, [True]

    def killed(self, samples, **given):
        calls.append((given["step"], given["index"]))
        if due and calls[-1] == at:
            due.clear()
            raise ConnectionError
        return update(self, samples, **given)

    monkeypatch.setattr(PolicyLearner, "update", killed)
    with pytest.raises(ConnectionError):
        train()
    calls.clear()
    ended = train()
    return calls, ended


def watched(train):
    """Train; step and place of every update, and what came of it."""
    seen, update = [], PolicyLearner.update

    def noted(self, samples, **given):
        seen.append((given["step"], given["index"]))
        return update(self, samples, **given)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(PolicyLearner, "update", noted)
        ended = train()
    return seen, ended


def broken_off(train, places):
    """Train, broken off before each of these updates in their order, then to the end.

    Every time it goes on with the very update before which it was broken off, though the generators
    of the process stand elsewhere by then.
    """
    due, since, update = list(places), [], PolicyLearner.update

    def ends(self, samples, **given):
        since.append((given["step"], given["index"]))
        if due and since[-1] == due[0]:
            due.pop(0)
            raise ConnectionError
        return update(self, samples, **given)

    begins = None
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(PolicyLearner, "update", ends)
        for place in places:
            with pytest.raises(ConnectionError):
                train()
            assert (since[0], since[-1]) == (begins or since[0], place)
            begins = place
            since.clear()
            random.seed(str(place))
            torch.manual_seed(sum(place))
        ended = train()
    assert since[0] == begins
    return ended


def run_with_ends(config, inputs, names, folder, stops):
    """Run in one folder, killed once behind each of these steps, then to the end: the outputs."""

    class Killed(BaseException):
        pass

    (folder / "scratch").mkdir(parents=True)
    outputs = {name: folder / name for name in names}
    for stop in (*stops, None):

        def emit(event, ends=stop):
            if event["kind"] == "progress" and event["done"] == ends:
                raise Killed

        context = StageContext(3, 1, "cpu", folder / "scratch", emit)
        if stop is None:
            run(config, inputs, outputs, context)
        else:
            with pytest.raises(Killed):
                run(config, inputs, outputs, context)
    return outputs
