"""Answers held against each other by a judge: both orders, ties, and replies that say nothing."""

import pytest

from posttrain.data.schemas import Problem
from posttrain.learning.rewards.components.base import Answers, Inquiry
from posttrain.learning.rewards.components.pairwise import PairwiseComponent
from posttrain.learning.rewards.config import RewardStack
from posttrain.stage.errors import UserError


def group(*texts, answer="2"):
    problem = Problem("own", "which?", answer, 1, "exact")
    return Answers(problem, texts, (1,) * len(texts), (False,) * len(texts))


def judged(server, *groups, reply, **settings):
    def answer(body):
        first, second = body["messages"][0]["content"].split("|")
        return reply(first, second)

    server.reply = answer
    part = PairwiseComponent(endpoint=server.endpoint(), template="{first}|{second}", **settings)
    return [list(each) for each in part.score_all(groups, Inquiry(lambda _: []))]


def larger(first, second):
    return f"Better: {'A' if float(first) > float(second) else 'B'}"


def test_an_answer_is_paid_the_share_of_its_comparisons_that_it_wins(server):
    """Of 1, 3, 2: none, both, one of two; equal texts are half a win and nobody is asked."""
    assert judged(server, group("1", "3", "2"), reply=larger) == [[0.0, 1.0, 0.5]]
    assert len(server.requests) == 6
    # 3 wins against 1, and halves against the other 3.
    assert judged(server, group("1", "3", "3"), reply=larger) == [[0.0, 0.75, 0.75]]


def test_a_judge_who_likes_what_stands_first_gives_everyone_a_half(server):
    assert judged(server, group("1", "3"), reply=lambda *_: "Better: A") == [[0.5, 0.5]]
    assert judged(server, group("4", "5"), reply=lambda *_: "better: tie") == [[0.5, 0.5]]


def test_the_reference_may_be_what_all_are_held_against(server):
    found = judged(server, group("1", "3", "2"), reply=larger, against="reference")
    assert found == [[0.0, 1.0, 0.5]]


def test_a_reply_that_names_neither_is_no_comparison(server):
    found = judged(server, group("6", "7"), group("8"), reply=lambda *_: "I cannot say")
    assert found == [[None, None], [None]]


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"template": "{first}"}, "the template must contain {second}"),
        ({"pattern": "better"}, "must have one group, A, B or tie, but has 0"),
    ],
)
def test_what_cannot_compare_is_refused(server, settings, told):
    endpoint = server.endpoint().model_dump()
    beats = {"kind": "pairwise", "endpoint": endpoint, **settings}
    with pytest.raises(UserError, match=told):
        RewardStack.parse(
            {"components": {"correct": "verifier", "beats": beats}}, where="rl.reward"
        )
