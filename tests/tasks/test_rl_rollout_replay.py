"""Rollouts of earlier steps in a step: which ones, by what ratio, and that a run is exact."""

import pytest

from posttrain.data.schemas import CURVE
from posttrain.data.tables import read_table
from posttrain.learning.episodes.episode import Span
from posttrain.learning.models.load import load_policy, weights_digest
from posttrain.learning.rl.learner import PolicyLearner
from posttrain.learning.rl.replay import replay
from posttrain.learning.rl.replays.left_over import LeftOver, LeftOverAtWork
from posttrain.learning.rl.replays.recent import Recent, RecentAtWork
from posttrain.learning.rl.rollout import Rollout
from posttrain.learning.rl.selections.brief_successes import BriefSuccesses
from posttrain.stage.context import StageContext
from tasks.rl.config import RlStageConfig
from tasks.rl.stage import run


def group(name):
    spans = (Span(0, 1, 0, drawn=False), Span(1, 2, 0, drawn=True))
    row = Rollout(name, "s", 0, f"{name}/0", (0, 1), spans, (-1.0,), (0,), "over", "")
    return [row._replace(trained=True)]


def names(groups):
    return [each[0].problem_id for each in groups]


def test_the_share_is_of_earlier_groups_within_the_window_and_none_stands_there_twice():
    work, part = RecentAtWork(), Recent(share=0.5, window=2)
    steps = [[group(f"{step}{letter}") for letter in "abc"] for step in range(4)]
    found = [
        names(work.recall(each, part, step=step, seed=1)) for step, each in enumerate(steps[:3])
    ]
    assert found[0] == []
    assert sorted(found[1]) == ["0a", "0b", "0c"]
    # As many as are fresh, of two steps.
    assert len(set(found[2])) == 3
    again = RecentAtWork()
    again.load_state_dict(work.state_dict())
    third, fourth = (each.recall(steps[3], part, step=3, seed=1) for each in (work, again))
    assert third == fourth
    assert {name[0] for name in names(third)} <= {"1", "2"}
    assert work.recall(steps[0], Recent(share=0.0), step=4, seed=1) == []


def test_what_was_left_out_is_recalled_in_due_course_and_then_forgotten():
    work, part = LeftOverAtWork(), LeftOver(every=2)

    def drawn(name):
        (kept,) = group(name)
        left = kept._replace(trained=False, reward=0.0)
        return [kept, left, left._replace(reward=None)]

    # A group of which nothing is learned was left out by the signal, and not by a selection.
    lost = [each._replace(trained=False) for each in drawn("lost")]
    assert work.recall([drawn("a"), lost], part, step=0, seed=1) == []
    again = LeftOverAtWork()
    again.load_state_dict(work.state_dict())
    second = [drawn("b"), group("whole")]
    found, same = (each.recall(second, part, step=1, seed=1) for each in (work, again))
    assert found == same
    assert sorted(names(found)) == ["a", "b"]
    assert [[each.reward for each in rows] for rows in found] == [[0.0], [0.0]]
    assert work.recall([drawn("c")], LeftOver(every=1, share=0.0), step=2, seed=1) == []
    assert work.recall([], LeftOver(every=1), step=3, seed=1) == []


def test_the_shortest_successes_and_the_longest_failures_are_learned_from():
    def row(length, solved, reward=0.0):
        return group("p")[0]._replace(logprobs=(-1.0,) * length, solved=solved, reward=reward)

    rows = [row(3, True), row(1, True), row(2, True), row(4, False), row(9, False), row(9, None)]
    rows[-1] = rows[-1]._replace(reward=None)
    assert list(BriefSuccesses(share=0.5).keep(rows, None)) == [1, 2, 4]
    assert list(BriefSuccesses(share=0.1).keep(rows, None)) == [1, 4]
    assert list(BriefSuccesses(share=1.0).keep(rows, None)) == [0, 1, 2, 3, 4]


REPLAYS = {
    "recent": {"replay": {"kind": "recent", "share": 0.5, "window": 2}},
    "left_over": {"replay": {"kind": "left_over", "every": 2}},
}


def trained(policy, problems, folder, kind="recent"):
    said = {
        "steps": 4,
        "problems_per_step": 6,
        "group_size": 4,
        "max_tokens": 6,
        "optimization": {"optimizer": "adamw", "learning_rate": 5e-3, "warmup_steps": 0},
        "updates": {"minibatches": 2, **REPLAYS[kind]},
        "draw": {"select": "brief_successes"} if kind == "left_over" else {},
        "checkpoint_every": 1,
    }
    config = RlStageConfig.parse(said, where="rl")
    folder.mkdir(exist_ok=True)
    outputs = {name: folder / name for name in ("policy", "rollouts", "curve", "report")}
    inputs = {"policy": policy, "problems": problems}
    run(config, inputs, outputs, StageContext.quiet(folder / "scratch", seed=3))
    return config, outputs, weights_digest(load_policy(outputs["policy"]).model)


@pytest.mark.slow
@pytest.mark.core
def test_a_run_is_replayed_and_gone_on_with_to_the_same_weights(
    guesser, coins_path, tmp_path, monkeypatch
):
    seen, update = [], PolicyLearner.update

    def counted(self, samples, **given):
        seen.append([sample for sample in samples if sample.policy_version < given["step"]])
        if len(seen) == broken_at:
            raise ConnectionError
        return update(self, samples, **given)

    broken_at = 0
    monkeypatch.setattr(PolicyLearner, "update", counted)
    config, outputs, digest = trained(guesser, coins_path, tmp_path / "whole")
    curve = read_table(outputs["curve"], CURVE)
    assert curve.filter(metric="rl/replayed")["value"].to_list() == [0, 24, 24, 24]
    earlier = [each for samples in seen for each in samples]
    assert len(earlier) == 3 * 24
    # Compared among themselves as they were, and held against the engine that drew them.
    assert {each.group for each in earlier} == set(range(-6, 0))
    assert any(any(each.advantages) for each in earlier)
    found = replay(
        config,
        {"policy": guesser},
        outputs["rollouts"],
        StageContext.quiet(tmp_path / "replay", seed=3),
    )
    assert found == digest
    broken_at = len(seen) + 6
    with pytest.raises(ConnectionError):
        trained(guesser, coins_path, tmp_path / "twice")
    _, _, resumed = trained(guesser, coins_path, tmp_path / "twice")
    assert resumed == digest


@pytest.mark.slow
def test_what_is_left_over_is_learned_from_again_to_the_same_weights(
    guesser, coins_path, tmp_path, monkeypatch
):
    update, calls = PolicyLearner.update, []

    def counted(self, samples, **given):
        calls.append(given)
        if len(calls) == broken_at:
            raise ConnectionError
        return update(self, samples, **given)

    broken_at = 0
    monkeypatch.setattr(PolicyLearner, "update", counted)
    config, outputs, digest = trained(guesser, coins_path, tmp_path / "whole", "left_over")
    none, some, *_ = read_table(outputs["curve"], CURVE).filter(metric="rl/replayed")["value"]
    assert none == 0
    assert some > 0
    context = StageContext.quiet(tmp_path / "replay", seed=3)
    assert replay(config, {"policy": guesser}, outputs["rollouts"], context) == digest
    broken_at = len(calls) + 6
    with pytest.raises(ConnectionError):
        trained(guesser, coins_path, tmp_path / "twice", "left_over")
    _, _, resumed = trained(guesser, coins_path, tmp_path / "twice", "left_over")
    assert resumed == digest
