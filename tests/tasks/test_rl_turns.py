"""Credit by turns of a bandit: the stored advantages are those of the stored turns, by hand."""

from collections import defaultdict
from itertools import pairwise
from statistics import mean, stdev

import pytest
import torch

from posttrain.data.schemas import (
    CURVE,
    ROLLOUTS,
)
from posttrain.data.tables import read_table
from posttrain.learning.models.load import load_policy
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError
from tasks.rl.config import RlStageConfig
from tasks.rl.stage import run

PLAYED = {"kind": "episodes", "environment": "bandit", "most_turns": 4}
BY_TURN = {"components": {"earned": {"kind": "earned"}}}
PLAIN = {"surrogate": {"kind": "reinforce"}, "regularizers": {"kl": None}}


@pytest.fixture(scope="module")
def inputs(bandits):
    return {**bandits, "references.start": bandits["policy"]}


@pytest.fixture
def played(inputs, tmp_path):
    """`played(advantage=...)`: the rows and the curve of a short run."""

    def ran(*, steps=1, producer=PLAYED, reward=BY_TURN, **algorithm):
        config = RlStageConfig.parse(
            {
                "steps": steps,
                "problems_per_step": 3,
                "group_size": 6,
                "max_tokens": 3,
                "producer": producer,
                "reward": reward,
                "algorithm": PLAIN | algorithm,
                "checkpoint_every": 0,
            },
            where="rl",
        )
        outputs = {name: tmp_path / name for name in ("policy", "rollouts", "curve", "report")}
        run(config, inputs, outputs, StageContext.quiet(tmp_path / "scratch", seed=3))
        rows = read_table(outputs["rollouts"], ROLLOUTS).to_dicts()
        return rows, read_table(outputs["curve"], CURVE)

    return ran


def spread(row, by_turn):
    """One number per drawn token: that of its turn."""
    drawn = [span for span in row["spans"] if span["drawn"]]
    return [by_turn[span["turn"]] for span in drawn for _ in range(span["end"] - span["begin"])]


def returns(row, gamma):
    found, ahead = [], 0.0
    for turn in reversed(row["turns"]):
        ahead = turn["earned"] + gamma * ahead
        found.append(ahead)
    return found[::-1]


def standardized(numbers):
    """(x - mean) / (deviation + 1e-6); 0 where all are alike."""
    if max(numbers) - min(numbers) < 1e-12:
        return [0.0] * len(numbers)
    center, width = mean(numbers), stdev(numbers) + 1e-6
    return [(x - center) / width for x in numbers]


def relative(rows, numbers, like, compared):
    """The numbers of every turn, each compared with those of its like in its group."""
    cells = defaultdict(list)
    for place, row in enumerate(rows):
        for turn, number in enumerate(numbers[place]):
            cells[row["group"], like(row, turn)].append((place, turn, number))
    found = [[0.0] * len(each) for each in numbers]
    for cell in cells.values():
        for (place, turn, _), value in zip(cell, compared([n for *_, n in cell]), strict=True):
            found[place][turn] = value
    return found, cells


def held_against(rows, expected):
    for row, by_turn in zip(rows, expected, strict=True):
        assert row["advantages"] == pytest.approx(spread(row, by_turn), abs=1e-5)
    assert max(abs(value) for row in rows for value in row["advantages"]) > 0.05


def test_anchor_states_are_compared_within_a_group_beside_whole_episodes(played):
    """GiGPO, equations 3, 6, 7 and 8."""
    advantage = {"kind": "turns", "like": "state", "gamma": 0.9, "scale": "sample"}
    rows, _ = played(advantage={**advantage, "episode_weight": 1.0})
    assert all(len(row["turns"]) == 4 for row in rows)
    steps, cells = relative(
        rows,
        [returns(row, 0.9) for row in rows],
        lambda row, turn: row["turns"][turn]["key"],
        standardized,
    )
    # All episodes begin in one state; later ones are met by some, and most of the last by one.
    sizes = {len(cell) for cell in cells.values()}
    assert 6 in sizes
    assert 1 in sizes
    assert len(sizes) > 2
    whole, _ = relative(rows, [[row["reward"]] for row in rows], lambda *_: 0, standardized)
    held_against(rows, [[e[0] + a for a in each] for e, each in zip(whole, steps, strict=True)])
    for row in rows:
        assert row["reward"] == pytest.approx(sum(turn["earned"] for turn in row["turns"]))


def test_a_turn_is_compared_with_the_same_turn_of_its_group(played):
    rows, _ = played(advantage={"kind": "turns", "gamma": 0.0, "baseline": "leave_one_out"})
    # Of a group of six: what is above the mean of the other five.
    found, _ = relative(
        rows,
        [returns(row, 0.0) for row in rows],
        lambda _, turn: turn,
        lambda numbers: [(6 * x - sum(numbers)) / 5 for x in numbers],
    )
    held_against(rows, found)


def test_a_turn_is_one_action_of_the_critic(played):
    """At first the critic says 0: what is left of GAE is the sum of γλ-discounted rewards."""
    critic = {"coefficient": 0.1, "clip": None}
    advantage = {"kind": "gae", "unit": "turn", "gamma": 0.9, "lam": 0.5}
    rows, _ = played(advantage=advantage, critic=critic)
    held_against(rows, [returns(row, 0.45) for row in rows])


def test_a_token_is_one_action_of_the_critic_and_what_is_read_costs_nothing(played):
    critic = {"coefficient": 0.1, "clip": None}
    rows, _ = played(advantage={"kind": "gae", "gamma": 0.9, "lam": 0.5}, critic=critic)
    lengths = set()
    for row in rows:
        sizes = [span["end"] - span["begin"] for span in row["spans"] if span["drawn"]]
        paid = []
        for turn, size in zip(row["turns"], sizes, strict=True):
            # The whole at the last token of its own turn.
            paid += [0.0] * (size - 1) + [turn["earned"]]
        assert row["token_rewards"] == pytest.approx(paid)
        expected, ahead = [], 0.0
        for pay in reversed(paid):
            ahead = pay + 0.45 * ahead
            expected.append(ahead)
        assert row["advantages"] == pytest.approx(expected[::-1], abs=1e-6)
        lengths |= {*sizes}
    assert len(lengths) > 1


def test_a_turn_is_paid_by_how_much_likelier_the_answer_became(played, inputs):
    """IGPO, equation 4: of what is read before a turn and before the next one."""
    gain = {"kind": "turn_information_gain", "model": "start", "fact": "presses"}
    rows, _ = played(
        reward={"components": {"earned": {"kind": "earned"}, "gain": gain}},
        advantage={"kind": "turns", "like": "any", "discounted": "advantages"},
    )
    policy = load_policy(inputs["policy"])
    # The bandit's fact that all episodes share stands for an answer.
    told = policy.tokenizer.encode("4", add_special_tokens=False)
    paid = []
    for row in rows:
        likely = []
        for span in row["spans"]:
            if span["drawn"]:
                ids = torch.tensor([[*row["token_ids"][: span["begin"]], *told]])
                with torch.no_grad():
                    logits = policy.model(input_ids=ids).logits[0]
                each = logits.log_softmax(-1)[:-1].gather(1, ids[0, 1:, None])[-len(told) :]
                likely.append(float(each.mean().exp()))
        gains = [after - before for before, after in pairwise(likely)] + [0.0]
        assert dict(scores(row))["gain"] == pytest.approx(likely[-1] - likely[0], abs=1e-5)
        pairs = zip(row["turns"], gains, strict=True)
        paid.append([turn["earned"] + gained for turn, gained in pairs])
        drawn = [span for span in row["spans"] if span["drawn"]]
        tokens = iter(row["token_rewards"])
        by_turn = [sum(next(tokens) for _ in range(span["end"] - span["begin"])) for span in drawn]
        assert by_turn == pytest.approx(paid[-1], abs=1e-5)
    assert max(max(each) - min(each) for each in paid) > 1e-3
    centered, _ = relative(
        rows, paid, lambda *_: 0, lambda numbers: [x - mean(numbers) for x in numbers]
    )
    sums = [[sum(turns[k:]) for k in range(len(turns))] for turns in centered]
    held_against(rows, sums)


def scores(row):
    return [(each["name"], each["value"]) for each in row["components"]]


def test_the_horizon_grows_by_a_schedule(played):
    growing = {**PLAYED, "most_turns": {"from": 1, "to": 4, "over": 3}}
    rows, curve = played(steps=5, producer=growing, advantage={"kind": "returns"})
    turns = {step: {len(r["turns"]) for r in rows if r["step"] == step} for step in range(1, 6)}
    assert turns == {1: {1}, 2: {2}, 3: {3}, 4: {4}, 5: {4}}
    assert {row["end"] for row in rows if row["step"] == 3} == {"turns"}
    assert {row["end"] for row in rows if row["step"] == 5} == {"over"}
    logged = curve.filter(metric="schedule/producer.most_turns")["value"].to_list()
    assert logged == [1.0, 2.0, 3.0, 4.0, 4.0]


def test_a_horizon_that_grows_takes_no_rollouts_of_an_earlier_one():
    growing = {**PLAYED, "most_turns": {"from": 1, "to": 4, "over": 3}}
    with pytest.raises(UserError, match=r"most_turns is a schedule, and staleness 1 learns"):
        RlStageConfig.parse({"producer": growing, "staleness": 1}, where="rl")
