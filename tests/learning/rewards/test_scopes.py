"""Components that pay every token or turn: what a stack makes of them, and what it refuses."""

from types import SimpleNamespace
from typing import ClassVar, Literal

import pytest

from posttrain.data.schemas import Problem
from posttrain.learning.algorithms.advantages.turns import TurnAdvantage
from posttrain.learning.episodes.episode import Span
from posttrain.learning.rewards.components.base import Answers, Component
from posttrain.learning.rewards.components.critiqued_spans import (
    CritiquedSpansComponent,
    critique,
    spans,
    token_ends,
)
from posttrain.learning.rewards.components.repeated_ngrams import RepeatedNgramsComponent
from posttrain.learning.rewards.components.token_log_ratio import TokenLogRatioComponent
from posttrain.learning.rewards.config import RewardStack
from posttrain.learning.rewards.score import Score
from posttrain.learning.rewards.stack import StackAtWork
from posttrain.learning.rl.config import RlConfig
from posttrain.learning.rl.rollout import Rollout
from posttrain.learning.rl.rollout_batch import rollout_batch
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


class Spoken(Component):
    """Pay each turn the number of its drawn tokens; an answer that is called lost is not judged."""

    SCOPE: ClassVar[Literal["turn"]] = "turn"
    RANGE: ClassVar[tuple[float, float]] = (0.0, 100.0)

    kind: Literal["spoken"] = "spoken"
    GIVES: ClassVar[object] = None

    def score_turns(self, groups, known):
        if self.GIVES is not None:
            return self.GIVES
        return [
            [
                None if text == "lost" else [float(length) for length in turns]
                for text, turns in zip(group.texts, group.turns, strict=True)
            ]
            for group in groups
        ]


@pytest.fixture(autouse=True)
def plugins():
    with plugged(lambda: {"component": {"digits": Digits, "spoken": Spoken}}):
        yield


GROUP = Answers(
    Problem("s", "p", "1", 1, "exact"),
    texts=("right", "wrong", "lost"),
    lengths=(2, 3, 1),
    truncated=(False, True, False),
    token_ids=((9, 1, 2), (9, 3, 4, 5), (9, 6)),
    drawn=((False, True, True), (False, True, True, True), (False, True)),
    turns=((2,), (1, 2), (1,)),
)
SCORES = {"right": RIGHT, "wrong": WRONG, "lost": RIGHT}


def stack(digits=None, *, combine=None, **settings):
    components = {"correct": "verifier", "digits": {"kind": "digits", **(digits or {})}}
    given = {"components": components, "bonus_may_outweigh": True, **settings}
    return RewardStack.parse(
        given if combine is None else given | {"combine": combine}, where="rl.reward"
    )


def by_turn(spoken=None, *, combine=None, **settings):
    components = {"correct": "verifier", "spoken": {"kind": "spoken", **(spoken or {})}}
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


def test_a_turn_is_paid_at_its_last_token():
    """1 + 0.5 x 2 for one turn of two tokens; 0 + 0.5 x (1 + 2) for turns of one and of two."""
    found = earned(by_turn(combine={"kind": "sum", "weights": {"spoken": 0.5}}))
    assert found.scores["spoken"] == [2.0, 3.0, None]
    assert found.rewards == [2.0, 1.5, None]
    assert found.token_rewards == [(0.0, 1.0), (0.5, 0.0, 1.0), ()]


def test_when_another_component_says_0_its_turns_are_paid_0():
    found = earned(by_turn({"when": "correct"}))
    assert found.rewards == [3.0, 0.0, None]
    assert found.token_rewards == [(0.0, 2.0), (0.0, 0.0, 0.0), ()]


@pytest.mark.parametrize("gives", [[[[1.0], [1.0], [1.0]]], [[[1.0], [1.0, 2.0]]], 3.0])
def test_other_than_one_number_for_each_turn_is_refused(monkeypatch, gives):
    monkeypatch.setattr(Spoken, "GIVES", gives)
    with pytest.raises(UserError, match=r"component.spoken: `score_turns` (gave|was asked)"):
        earned(by_turn())


def rollout(group, place, turns, *, correct, spoken):
    """A rollout of turns with that many drawn tokens each, between which one token is read."""
    spans, at = [], 0
    for turn, length in enumerate(turns):
        spans += [Span(at, at + 1, turn, drawn=False), Span(at + 1, at + 1 + length, turn, True)]
        at += 1 + length
    paid = [pay for pay, length in zip(spoken, turns, strict=True) for pay in at_end(pay, length)]
    return Rollout(
        problem_id="p",
        source="s",
        group=group,
        episode=f"p/{place}",
        token_ids=(0,) * at,
        spans=tuple(spans),
        logprobs=(-1.0,) * sum(turns),
        versions=(0,) * len(turns),
        end="over",
        text="",
        reward=correct + sum(spoken),
        token_rewards=tuple(paid),
    )


def at_end(pay, length):
    return [0.0] * (length - 1) + [pay]


def test_credit_by_turns_pays_each_turn_its_own_score_and_the_last_one_the_rest():
    """Turn 0 is paid 4 against 2, turn 1 0 + 1 against 3 + 0, each less the mean of its like."""
    pair = [
        rollout(0, 0, (2, 1), correct=1.0, spoken=(4.0, 0.0)),
        rollout(0, 1, (1, 3), correct=0.0, spoken=(2.0, 3.0)),
    ]
    assert [each.drawn_by_turn for each in pair] == [(2, 1), (1, 3)]
    batch = rollout_batch(pair, needs={"turns"})
    assert batch.turn_rewards_BK.tolist() == [[4.0, 1.0], [2.0, 3.0]]
    credit = TurnAdvantage(gamma=0.0, scale="none")
    advantages, _ = credit.estimate(batch, rewards_B=batch.rewards_B, costs=[], include_B=None)
    assert advantages.tolist() == [[1.0, 1.0, -1.0, 0.0], [-1.0, 1.0, 1.0, 1.0]]


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
    with pytest.raises(UserError, match=r"components.spoken scores every turn, but combine"):
        by_turn(combine=combine)


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
    spoken = {"components": {"correct": "verifier", "spoken": "spoken"}, "bonus_may_outweigh": True}
    with pytest.raises(UserError, match=r"spoken pays every turn by itself, but algorithm\.advan"):
        RlConfig.parse({"reward": spoken}, where="rl")
    for kind in ("turns", "returns"):
        RlConfig.parse({"reward": spoken, "algorithm": {"advantage": {"kind": kind}}}, where="rl")
    by_turns = {"advantage": {"kind": "turns"}}
    with pytest.raises(UserError, match=r"turns does not tell one token of an answer from another"):
        RlConfig.parse({"reward": reward, "algorithm": by_turns}, where="rl")
    by_token = {"advantage": {"kind": "returns"}}
    RlConfig.parse({"reward": reward, "algorithm": by_token}, where="rl")
    measured = reward | {"combine": {"kind": "sum", "weights": {"digits": 0}}}
    RlConfig.parse({"reward": measured}, where="rl")


def test_a_log_ratio_is_scaled_and_then_clipped():
    part = TokenLogRatioComponent(of="a", against="b", beta=0.5, clip=0.2)
    assert [part._paid(each) for each in (0.3, 1.0, -2.0)] == [0.15, 0.2, -0.2]
    assert TokenLogRatioComponent(of="a", against="b", beta=0.5)._paid(-2.0) == -1.0


def test_repeated_ngrams_are_fined_where_they_stand():
    """1 2 stands at 0 and 2, and again at 3 with 2 1 before: the fines are at 2, 3 and 4."""
    ids = (1, 2, 1, 2, 1, 3)
    answers = Answers(
        Problem("s", "p", "1", 1, "exact"),
        ("",),
        (6,),
        (False,),
        token_ids=((9, *ids),),
        drawn=((False, *(True,) * 6),),
    )
    part = RepeatedNgramsComponent(n=2, penalty=1.0, discount=0.5)
    [[paid]] = part.score_tokens([answers], None)
    # From the end: 0, -1, -1.5, -1.75, -0.875, -0.4375; each is paid what it has beyond the next.
    assert paid == [0.4375, 0.875, -0.25, -0.5, -1.0, 0.0]
    plain = RepeatedNgramsComponent(n=2, penalty=1.0, discount=1.0)
    assert plain.score_tokens([answers], None) == [[[0.0, 0.0, -1.0, -1.0, -1.0, 0.0]]]


class Letters:
    """A tokenizer of two letters a token; 0 is special, and 1 and 2 are halves of one letter."""

    PIECES: ClassVar[dict[int, str]] = {3: "2 ", 4: "+ ", 5: "= ", 6: "5\n", 7: "##", 8: "9"}

    def decode(self, ids, *, skip_special_tokens):
        assert skip_special_tokens
        if list(ids) in ([1], [2]):
            return "?"
        return "".join("é" if each == 1 else self.PIECES.get(each, "") for each in ids)


def test_a_critique_quotes_every_step_and_the_end():
    text = "2 + 3 = 5\n6 / 0 = 1\n7 / 2 = 3\nso\n#### 9\n"
    said = critique(text, solved=True)
    assert said.splitlines() == [
        "Right: `2 + 3 = 5`.",
        "Wrong: `6 / 0 = 1`, nothing is divided by 0.",
        "Right: `7 / 2 = 3`.",
        "Right: `#### 9`.",
    ]
    found = [(text[begin:end], good) for begin, end, good in spans(said, text)]
    assert found == [
        ("2 + 3 = 5", True),
        ("6 / 0 = 1", False),
        ("7 / 2 = 3", True),
        ("#### 9", True),
    ]
    assert critique("2 + 3 = 5\n5 + 1 = 6", solved=False).splitlines() == [
        "Right: `2 + 3 = 5`.",
        "Wrong: `5 + 1 = 6`, it is not the answer.",
    ]
    assert list(spans("Right: `8`.\nWrong: `5`.", "5")) == [(0, 1, False)]


def test_tokens_are_paid_by_the_span_that_they_lie_in():
    ids = (3, 4, 3, 5, 6, 7, 8, 0)
    text = "2 + 2 = 5\n##9"
    answers = Answers(
        Problem("s", "p", "1", 1, "exact"),
        (text, text),
        (8, 8),
        (False, False),
        token_ids=((9, *ids), ids),
        drawn=((False, *(True,) * 8), (True,) * 8),
        solved=(True, None),
    )
    known = SimpleNamespace(models=SimpleNamespace(tokenizer=Letters()))
    [found] = CritiquedSpansComponent(weight=0.5).score_tokens([answers], known)
    assert found == [[-0.5, -0.5, -0.5, -0.5, -0.5, 0.5, 0.5, 0.0], None]
    # Halves of a letter end where it does.
    assert token_ends(Letters(), [1, 2, 3]) == [1, 1, 3]
    nobody = SimpleNamespace(models=SimpleNamespace(tokenizer=None))
    with pytest.raises(UserError, match="tokenizer"):
        CritiquedSpansComponent().score_tokens([answers], nobody)
