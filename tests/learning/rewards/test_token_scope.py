"""Components that pay every token: what a stack makes of them, by hand, and what it refuses."""

from typing import ClassVar, Literal

import pytest

from posttrain.data.schemas import Problem
from posttrain.learning.rewards.components.base import Answers, Component
from posttrain.learning.rewards.components.token_log_ratio import TokenLogRatioComponent
from posttrain.learning.rewards.config import RewardStack
from posttrain.learning.rewards.score import Score
from posttrain.learning.rewards.stack import StackAtWork
from posttrain.learning.rl.config import RlConfig
from posttrain.stage.errors import UserError
from posttrain.stage.slots import plugged

RIGHT, WRONG, LOST = (Score(value, "") for value in (1.0, 0.0, None))


class Digits(Component):
    """Pay each token what its id is; an answer that is called lost cannot be judged."""

    SCOPE: ClassVar[Literal["token"]] = "token"
    RANGE: ClassVar[tuple[float, float]] = (0.0, 100.0)

    kind: Literal["digits"] = "digits"
    GIVES: ClassVar[object] = None

    def score_tokens(self, groups, known):
        if self.GIVES is not None:
            return self.GIVES
        return [
            [
                None
                if text == "lost"
                else [float(each) for each, own in zip(ids, drawn, strict=True) if own]
                for text, ids, drawn in zip(group.texts, group.token_ids, group.drawn, strict=True)
            ]
            for group in groups
        ]


@pytest.fixture(autouse=True)
def plugins():
    with plugged(lambda: {"component": {"digits": Digits}}):
        yield


GROUP = Answers(
    Problem("s", "p", "1", 1, "exact"),
    texts=("right", "wrong", "lost"),
    lengths=(2, 3, 1),
    truncated=(False, True, False),
    token_ids=((9, 1, 2), (9, 3, 4, 5), (9, 6)),
    drawn=((False, True, True), (False, True, True, True), (False, True)),
)
SCORES = {"right": RIGHT, "wrong": WRONG, "lost": RIGHT}


def stack(digits=None, *, combine=None, **settings):
    components = {"correct": "verifier", "digits": {"kind": "digits", **(digits or {})}}
    given = {"components": components, "bonus_may_outweigh": True, **settings}
    return RewardStack.parse(
        given if combine is None else given | {"combine": combine}, where="rl.reward"
    )


def earned(made):
    return StackAtWork(lambda answers: [SCORES[text] for text, _ in answers]).earned(
        made, [GROUP], step=0
    )


def test_tokens_are_paid_their_weighted_share_and_the_reward_is_their_sum_with_the_rest():
    """1 + 0.5 x (1 + 2), and 0 + 0.5 x (3 + 4 + 5)."""
    found = earned(stack(combine={"kind": "sum", "weights": {"digits": 0.5}}))
    assert found.scores["digits"] == [3.0, 12.0, None]
    assert found.rewards == [2.5, 6.0, None]
    assert found.token_rewards == [(0.5, 1.0), (1.5, 2.0, 2.5), ()]


def test_a_component_without_a_weight_is_measured_and_pays_no_token():
    found = earned(stack(combine={"kind": "sum", "weights": {"digits": 0}}))
    assert found.scores["digits"] == [3.0, 12.0, None]
    assert found.rewards == [1.0, 0.0, 1.0]
    assert found.token_rewards == [(), (), ()]


def test_when_another_component_says_0_its_tokens_are_paid_0():
    found = earned(stack({"when": "correct"}))
    assert found.rewards == [4.0, 0.0, None]
    assert found.token_rewards == [(1.0, 2.0), (0.0, 0.0, 0.0), ()]


def test_what_was_dropped_pays_no_token():
    found = earned(stack(truncated="dropped"))
    assert found.rewards == [4.0, None, None]
    assert found.token_rewards == [(1.0, 2.0), (), ()]


@pytest.mark.parametrize("gives", [[[[1.0], [1.0], [1.0]]], [[[1.0, 2.0]]], 3.0])
def test_other_than_one_number_for_each_token_is_refused(monkeypatch, gives):
    monkeypatch.setattr(Digits, "GIVES", gives)
    with pytest.raises(UserError, match=r"component.digits: `score_tokens` (gave|was asked)"):
        earned(stack())


@pytest.mark.parametrize(
    "combine",
    [
        {"kind": "gated", "gates": ["correct"]},
        {"kind": "product"},
        {"kind": "lagrangian", "limits": {"correct": 0.5}},
        {"kind": "advantages"},
    ],
)
def test_a_combination_that_takes_one_number_for_each_answer_is_refused(combine):
    with pytest.raises(UserError) as error:
        stack(combine=combine)
    assert str(error.value) == (
        f"rl.reward: components.digits scores every token, but combine {combine['kind']} takes one"
        " number for each answer; set combine to sum, or take a component of scope answer or group"
    )


def test_no_sum_over_tokens_says_that_a_problem_is_solved():
    with pytest.raises(UserError, match="solved_by: digits scores every token"):
        stack(solved_by="digits")


def test_advantages_that_all_tokens_share_are_refused_where_tokens_are_paid():
    reward = {
        "components": {"correct": "verifier", "digits": "digits"},
        "bonus_may_outweigh": True,
    }
    with pytest.raises(UserError, match=r"digits pays every token by itself, but algorithm\.advan"):
        RlConfig.parse({"reward": reward}, where="rl")
    by_token = {"advantage": {"kind": "returns"}}
    RlConfig.parse({"reward": reward, "algorithm": by_token}, where="rl")
    measured = reward | {"combine": {"kind": "sum", "weights": {"digits": 0}}}
    RlConfig.parse({"reward": measured}, where="rl")


def test_a_log_ratio_is_scaled_and_then_clipped():
    part = TokenLogRatioComponent(of="a", against="b", beta=0.5, clip=0.2)
    assert [part._paid(each) for each in (0.3, 1.0, -2.0)] == [0.15, 0.2, -0.2]
    assert TokenLogRatioComponent(of="a", against="b", beta=0.5)._paid(-2.0) == -1.0
