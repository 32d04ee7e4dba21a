"""Of a group that is drawn too large some rollouts are learned from; all are stored."""

from random import Random
from typing import Literal

import polars as pl
import pytest

from posttrain.data.schemas import CURVE, ROLLOUTS
from posttrain.data.tables import read_table
from posttrain.learning.episodes.environments.base import POLICY, Ask, Environment, Situation, Told
from posttrain.learning.episodes.episode import Span
from posttrain.learning.models.load import load_policy, weights_digest
from posttrain.learning.rl.replay import replay
from posttrain.learning.rl.rollout import Rollout
from posttrain.learning.rl.selections.base import Selection, selected
from posttrain.learning.rl.selections.greedy_failed import GreedyFailed
from posttrain.learning.rl.selections.resample_on_correct import ResampleOnCorrect
from posttrain.learning.rl.selections.told_in_order import ToldInOrder
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from tasks.rl.config import RlStageConfig
from tasks.rl.stage import run

HALF = ResampleOnCorrect()
TAGS = ("<answer>", "</answer>")


def rollout(place, reward, errors=0.0, *, turns=3, text="", **further):
    """Of so many turns; each but the last was answered."""
    spans = [Span(at, at + 1, at // 2, drawn=bool(at % 2)) for at in range(2 * turns)]
    return Rollout(
        problem_id="p",
        source="s",
        group=0,
        episode=f"p/{place}",
        token_ids=(0,) * 2 * turns,
        spans=tuple(spans),
        logprobs=(-1.0,) * turns,
        versions=(0,) * turns,
        end="over",
        text=text,
        reward=reward,
        solved=None if reward is None else reward >= 1,
        facts=(("tool_errors", errors),) if errors else (),
        **further,
    )


def kept(selection, rewards, errors=None):
    errors = errors or [0.0] * len(rewards)
    group = [rollout(at, *each) for at, each in enumerate(zip(rewards, errors, strict=True))]
    return list(selection.keep(group, Random(0)))


def test_failures_keep_their_share_and_the_cleanest_successes_are_learned_from():
    # Half of 16 is 8; of 6 failures 3, so that 5 successes are left: the ones of 0 errors, then 1.
    rewards = [1, 0, 1, 1, 0, 1, 1, 1, 0, 1, 0, 1, 1, 0, 1, 0]
    errors = [2, 0, 1, 0, 2, 2, 0, 2, 1, 2, 1, 0, 2, 0, 2, 2]
    wrong_and_clean = {1, 13, 8}  # 0, 0 and the first of two with 1
    assert kept(HALF, rewards, errors) == sorted({3, 6, 11, 2, 0} | wrong_and_clean)
    by_paper = ResampleOnCorrect(wrong="as_drawn")
    assert kept(by_paper, rewards, errors) == sorted({3, 6, 11, 2, 0} | {1, 4, 8})


@pytest.mark.parametrize(
    ("right", "wrong", "of_each"),
    [
        (27, 5, (14, 2)),  # 5 / 2 rounds to 2, as Python does
        (25, 7, (12, 4)),  # 7 / 2 rounds to 4
        (31, 1, (15, 1)),  # no share, but one is there
        (29, 3, (14, 2)),
        (1, 31, (1, 15)),
        (2, 30, (2, 14)),  # 2 at least, where a share would be 1
        (32, 0, (16, 0)),
        (0, 32, (0, 16)),
    ],
)
def test_of_32_half_are_learned_from_by_the_authors_counts(right, wrong, of_each):
    rewards = [1] * right + [0] * wrong
    places = kept(HALF, rewards)
    assert (sum(at < right for at in places), sum(at >= right for at in places)) == of_each


def test_a_small_group_keeps_one_of_each_before_two_of_any():
    assert kept(HALF, [1, 1, 1, 0]) == [0, 3]
    assert kept(ResampleOnCorrect(share=1.0), [1, 0, 0]) == [0, 1, 2]


def test_what_could_not_be_judged_is_neither_kept_nor_counted():
    assert kept(HALF, [None, 1, None, 0, None, None]) == [1, 3]
    assert kept(HALF, [None, None]) == []


def test_the_penalty_is_the_share_of_calls_that_failed_and_of_answers_said_again():
    marked = ResampleOnCorrect(answer_tags=TAGS)
    once, again = "<answer>7</answer>", "<answer>7</answer> or <answer>8</answer>"
    # Two of the three turns were answered.
    assert HALF.penalty(rollout(0, 1.0, errors=1)) == 0.5
    assert HALF.penalty(rollout(0, 1.0)) == 0.0
    # No call at all; and one that failed in the last turn, which nothing answered.
    assert HALF.penalty(rollout(0, 1.0, turns=1)) == 0.5
    assert HALF.penalty(rollout(0, 1.0, errors=1, turns=1)) == 1.0
    assert marked.penalty(rollout(0, 1.0, text=once)) == 0.0
    assert marked.penalty(rollout(0, 1.0, text=again)) == pytest.approx(1 / 3)
    for text in ("7", "<answer>7", "7</answer>", "<answer><answer>7</answer>"):
        assert marked.penalty(rollout(0, 1.0, errors=1, text=text)) == 1.5


class Twice(Selection):
    kind: Literal["twice"] = "twice"

    def keep(self, rollouts, draw):
        return [0, 0]


class Any(Selection):
    kind: Literal["any"] = "any"

    def keep(self, rollouts, draw):
        return draw.sample(range(len(rollouts)), 2)


def test_a_place_that_is_given_twice_is_refused():
    group = [rollout(0, 1.0), rollout(1, 0.0)]
    with pytest.raises(UserError, match=r"given 2 rollouts and gave the places \[0, 0\]"):
        selected(Twice(), group, seed=0, step=0)


def test_who_is_compared_with_each_other_is_chosen_from_apart_and_by_the_seed_alone():
    sides = [[rollout(at, 1.0, peers=name) for at in range(8)] for name in "ab"]
    mixed = [each for pair in zip(*sides, strict=True) for each in pair]
    found = selected(Any(), mixed, seed=1, step=2)
    for name in "ab":
        assert sum(each.trained for each in found if each.peers == name) == 2
    assert found == selected(Any(), mixed, seed=1, step=2)
    assert found != selected(Any(), mixed, seed=1, step=3)
    # The first side's are drawn the same where the other is not there.
    alone = [each for each in found if each.peers == "a"]
    assert alone == selected(Any(), sides[0], seed=1, step=2)


def test_all_segments_of_a_whole_are_learned_from_or_none():
    rows = [rollout(at, float(at % 2), segment=piece) for at in range(4) for piece in (0, 1)]
    found = selected(HALF, rows, seed=0, step=0)
    assert [each.trained for each in found] == [True] * 4 + [False] * 4


class Stumbling(Environment):
    """Ask twice; half of the first turns are counted as errors, by their seed."""

    kind: Literal["stumbling"] = "stumbling"

    def start(self, problem, seed):
        return Situation({"left": 1, "answer": problem.answer}, (Ask(POLICY),))

    def step(self, state, acts, seed):
        after = {**state, "left": state["left"] - 1}
        if after["left"] < 0:
            return Situation(after)
        errors = {"tool_errors": 1.0} if seed % 2 else {}
        return Situation(after, (Ask(POLICY, (Told("user", "again"),)),), facts=errors)


def test_a_run_learns_from_the_chosen_alone_and_replays_from_what_is_stored(
    guesser, coins_path, tmp_path
):
    config = RlStageConfig(
        steps=3,
        problems_per_step=4,
        group_size=8,
        max_tokens=6,
        optimization={"optimizer": "adamw", "learning_rate": 5e-3, "warmup_steps": 0},
        updates={"minibatches": 2},
        producer={"kind": "episodes", "environment": Stumbling()},
        draw={"select": "resample_on_correct"},
        checkpoint_every=0,
    )
    outputs = {name: tmp_path / name for name in ("policy", "rollouts", "curve", "report")}
    inputs = {"policy": guesser, "problems": coins_path}
    run(config, inputs, outputs, StageContext.quiet(tmp_path / "scratch", seed=3))
    rows = read_table(outputs["rollouts"], ROLLOUTS)
    chosen = rows.filter("trained")
    assert (len(rows), len(chosen)) == (3 * 4 * 8, 3 * 4 * 4)
    assert rows.filter(~pl.col("trained"))["advantages"].list.len().sum() == 0
    # By default an advantage is the reward less the mean, and that is of those alone.
    less = pl.col("reward") - pl.col("reward").mean().over("step", "group")
    wanted = chosen.select(less)["reward"]
    assert wanted.abs().max() > 0
    assert chosen["advantages"].list.first().to_list() == pytest.approx(wanted.to_list())
    errors = rows.with_columns(errors=pl.col("facts").list.len())
    assert set(errors["errors"]) == {0, 1}
    right = errors.filter("solved").group_by("trained").agg(pl.col("errors").mean())
    by = dict(right.iter_rows())
    assert by[True] < by[False]
    curve = read_table(outputs["curve"], CURVE)
    for name, number in (("rollouts_drawn", 32), ("rollouts_trained", 16)):
        assert set(curve.filter(metric=f"rl/{name}")["value"]) == {number}
    for step, part in errors.filter("solved").group_by("step"):
        for name, trained in (("kept", True), ("left", False)):
            found = curve.filter(metric=f"rl/selection_penalty_{name}", step=step[0])["value"]
            wanted = part.filter(trained=trained)["errors"]
            assert found.to_list() == ([pytest.approx(wanted.mean())] if len(wanted) else [])
    context = StageContext.quiet(tmp_path / "replay", seed=3)
    found = replay(config, {"policy": guesser}, outputs["rollouts"], context)
    assert found == weights_digest(load_policy(outputs["policy"]).model)


def test_groups_are_as_large_for_the_algorithm_as_what_is_learned_from():
    with pytest.raises(UserError, match="group_size 1"):
        RlStageConfig.parse(
            {"group_size": 2, "draw": {"select": "resample_on_correct"}, "algorithm": "rloo"},
            where="rl",
        )


def test_what_stands_behind_a_shuffled_prompt_is_left_out():
    for role, places in (("policy", [0, 1]), ("shuffled", [])):
        group = [rollout(at, 1, role=role) for at in range(2)]
        assert list(ToldInOrder().keep(group, Random(0))) == places


def test_a_problem_whose_greedy_answer_is_right_is_left_out():
    for solved, places in ((1.0, []), (0.0, [0, 1])):
        facts = (("greedy_solved", solved),)
        group = [rollout(at, 1)._replace(facts=facts) for at in range(2)]
        assert list(GreedyFailed().keep(group, Random(0))) == places
    with pytest.raises(UserError, match="set rl.producer to greedy_first"):
        kept(GreedyFailed(), [1, 0])
