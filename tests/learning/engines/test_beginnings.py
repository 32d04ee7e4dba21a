"""What is drawn behind beginnings: limits, order, and where a step is the last one."""

from dataclasses import replace

import pytest

from posttrain.learning.rollouts.engines.base import FinishReason, Sample, SamplingParams
from posttrain.learning.rollouts.engines.beginnings import (
    AnswerStart,
    drawn_behind,
    drawn_steps,
    step_ended,
)


class Echo:
    """Answers every prompt by its length, as often as it is asked to."""

    context_length = 20

    def __init__(self):
        self.calls, self.stops = [], []

    def sample(self, prompts, params):
        self.calls.append(([prompt.id for prompt in prompts], params.max_tokens))
        self.stops.append(params.stop)
        return [
            Sample(prompt.id, index, (len(prompt.token_ids),), (0.0,), "", FinishReason.STOP, 0)
            for prompt in prompts
            for index in range(params.num_samples)
        ]


class Letters:
    def decode(self, ids):
        return "".join(map(chr, ids))


def test_each_is_drawn_up_to_what_is_left_and_comes_back_in_order():
    engine = Echo()
    asked = [
        AnswerStart("a", (1, 2), (3, 4, 5)),
        AnswerStart("b", (1,)),
        AnswerStart("c", (1, 2, 3), (4, 5, 6)),
    ]
    found = drawn_behind(engine, asked, SamplingParams(max_tokens=10, num_samples=2))
    assert engine.calls == [(["b"], 10), (["a", "c"], 7)]
    assert [[each.token_ids for each in group] for group in found] == [
        [(5,), (5,)],
        [(1,), (1,)],
        [(6,), (6,)],
    ]


@pytest.mark.parametrize(
    ("text", "begun", "max_tokens", "goes_on", "reason"),
    [
        ("ab\n", 2, 6, True, FinishReason.STOP),
        ("ab\n", 3, 6, False, FinishReason.LENGTH),  # 3 + 3 of 6: no room for another token
        ("ab", 2, 6, False, FinishReason.STOP),  # no line's end: the answer is over
        ("ab\n", 2, 90, False, FinishReason.LENGTH),  # the context holds 15 + 5
    ],
)
def test_a_step_is_the_last_one_where_nothing_can_follow(text, begun, max_tokens, goes_on, reason):
    step = Sample("a", 0, tuple(map(ord, text)), (0.0,) * len(text), "", FinishReason.STOP, 0)
    behind = AnswerStart("a", (0,) * (15 if max_tokens == 90 else 2), (0,) * begun)
    ended, more = step_ended(step, behind, Letters(), max_tokens=max_tokens, context_length=20)
    assert (more, ended.finish_reason) == (goes_on, reason)


def test_steps_are_drawn_up_to_a_line_or_a_stop_and_told_whether_they_go_on():
    """The engine says how long it was asked: behind ten tokens that is a line's end."""
    engine = Echo()
    asked = [AnswerStart("a", (1,) * 8, (2, 2)), AnswerStart("b", (1,) * 9)]
    params = SamplingParams(max_tokens=4, num_samples=2, stop=("END",))
    found = drawn_steps(engine, Letters(), asked, params)
    assert [[(step.token_ids, more) for step, more in group] for group in found] == [
        [((10,), True), ((10,), True)],
        [((9,), False), ((9,), False)],
    ]
    assert engine.stops == [("\n", "END")] * 2
    # A token less, and there is no room behind the line: 2 + 1 of 3.
    (cut, _), _ = drawn_steps(engine, Letters(), asked[:1], replace(params, max_tokens=3))[0]
    assert cut.finish_reason is FinishReason.LENGTH
