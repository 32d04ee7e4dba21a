"""Answers that are drawn window by window, with an engine that says what it is told to."""

import math

import pytest

from posttrain.data.schemas import Problem
from posttrain.learning.rewards.config import RewardStack
from posttrain.learning.rewards.score import Score
from posttrain.learning.rl.metrics import describe
from posttrain.learning.rl.producers.base import SamplingRound, Workbench
from posttrain.learning.rl.producers.windows import Windows
from posttrain.learning.rl.rewarder import Rewarder
from posttrain.learning.rollouts.engines.base import Prompt, SamplingParams
from posttrain.stage.errors import UserError
from tests.learning.rl.test_before_failure import Letters
from tests.scripted import FakeEngine

PROBLEMS = {each.prompt: each for each in (Problem("s", p, "x", 1, "exact") for p in ("a?", "b?"))}
SAYS = {"a?": "abcdefg", "b?": "xy"}


def says(prompt, index, seed):
    """What is left of the answer behind what the prompt has of it, whatever the policy."""
    told = bytes(prompt.token_ids).decode()
    return SAYS[told[:2]].removeprefix(told[2:])


@pytest.fixture
def engine():
    return FakeEngine(Letters(), says)


@pytest.fixture
def made(engine):
    return Windows(most=3).start(Workbench(engine, None, Letters()))


def at(step, limit=9, size=1):
    return SamplingRound(step, SamplingParams(limit, num_samples=size, seed=step), 4, step)


def drawn(made, step, *names, **more):
    made.bench.engine.update(step)
    prompts = [Prompt(PROBLEMS[name].id, tuple(name.encode())) for name in names]
    return made.produce([PROBLEMS[name] for name in names], prompts, at(step, **more))


def test_a_step_draws_a_window_of_each_and_the_next_one_goes_on(made):
    """Seven letters and the end are windows of 3, 3 and 2 tokens; two letters and the end are 3."""
    (first, short) = drawn(made, 0, "a?", "b?")
    assert [(row.text, row.end, row.earlier) for row in first] == [("abc", "unfinished", 0)]
    assert [(row.text, row.end, row.num_drawn) for row in short] == [("xy", "over", 3)]
    assert made.at_work_on == [PROBLEMS["a?"].id]
    assert not made.held_back
    (second, fresh) = drawn(made, 1, "b?")
    assert [(row.text, row.end, row.earlier) for row in second] == [("abcdef", "unfinished", 3)]
    assert [row.group for row in (*second, *fresh)] == [4, 5]
    ((last,),) = drawn(made, 2)
    assert (last.text, last.end, last.earlier, last.num_new) == ("abcdefg", "over", 6, 2)
    assert last.token_ids == (*b"a?abcdefg", 0)
    assert last.versions == (0, 1, 2)
    assert last.token_versions == (0, 0, 0, 1, 1, 1, 2, 2)
    assert [(span.begin, span.end, span.drawn) for span in last.spans] == [
        (0, 2, False), (2, 5, True), (5, 8, True), (8, 10, True)
    ]  # fmt: skip
    assert not made.at_work_on


def test_an_answer_of_three_windows_is_the_one_that_is_drawn_whole(engine, made):
    """Where the policy stays, row and text are those of one window, but for where it was cut."""
    whole_made = Windows(most=1).start(Workbench(engine, None, Letters()))
    ((whole,),) = drawn(whole_made, 0, "a?")
    for step, names in enumerate((["a?"], [], [])):
        ((last,),) = drawn(made, step, *names)
    for name in ("problem_id", "episode", "token_ids", "logprobs", "end", "text", "drawn"):
        assert getattr(last, name) == getattr(whole, name), name
    assert (whole.versions, whole.earlier) == ((0,), 0)


def test_only_those_of_a_group_go_on_that_are_not_over(engine):
    """Of two answers to a problem one is over after two tokens; its group goes on without it."""

    def told(prompt, index, seed):
        return "z" if index else says(prompt, index, seed)

    engine.script = told
    made = Windows(most=3).start(Workbench(engine, None, Letters()))
    (group,) = drawn(made, 0, "a?", size=2)
    assert [row.end for row in group] == ["unfinished", "over"]
    (group,) = drawn(made, 1, size=2)
    assert [(row.episode[-2:], row.text) for row in group] == [("/0", "abcdef")]


def test_the_last_window_and_the_context_cut_an_answer_off(engine):
    """Of at most six tokens a window is two, and after the third it is cut off; so is one that has
    no room behind it."""
    made = Windows(most=3).start(Workbench(engine, None, Letters()))
    ends = [
        drawn(made, step, *names, limit=6)[0][0].end for step, names in enumerate((["a?"], (), ()))
    ]
    assert ends == ["unfinished", "unfinished", "tokens"]
    tight = FakeEngine(Letters(), says, context_length=5)
    made = Windows(most=3).start(Workbench(tight, None, Letters()))
    ((row,),) = drawn(made, 0, "a?")
    assert (row.end, row.text) == ("tokens", "abc")
    assert not made.at_work_on


def test_it_goes_on_from_its_state(engine, made):
    drawn(made, 0, "a?")
    state = made.state_dict()
    again = Windows(most=3).start(Workbench(engine, None, Letters()))
    again.load_state_dict(state)
    assert again.at_work_on == made.at_work_on
    for step in (1, 2):
        assert drawn(again, step) == drawn(made, step)


def test_a_second_round_of_sampling_in_a_step_is_refused(made):
    drawn(made, 0, "a?")
    with pytest.raises(UserError, match="set draw.max_rounds to 1"):
        drawn(made, 0, "b?")


def test_an_answer_is_carried_over_as_many_steps_as_it_has_windows_behind_the_first():
    assert [Windows(most=most).carried for most in (1, 2, 3)] == [0, 1, 2]


def test_what_goes_on_is_judged_by_nobody_and_counted_when_it_is_over(made):
    """Lengths and rewards are of the answers that are over, tokens of those that a step drew."""
    asked = []

    def known(pairs):
        asked.extend(text for text, _ in pairs)
        return [Score(1.0, "correct") for _ in pairs]

    rewarder = Rewarder(RewardStack(), known)
    groups = drawn(made, 0, "a?", "b?")
    earned = rewarder.rewarded(groups, list(PROBLEMS.values()), step=0)
    assert asked == ["xy"]
    assert [(row.reward, row.solved) for group in earned for row in group] == [
        (None, None), (1.0, True)
    ]  # fmt: skip
    found = describe(earned, informative=[True, True])
    assert (found["reward"], found["length"], found["unfinished"]) == (1.0, 3.0, 0.5)
    assert "unjudged" not in found
    assert found["reward/correct/unjudged"] == 0.0
    last = drawn(made, 1)
    assert rewarder.rewarded(last, [PROBLEMS["a?"]], step=1) == last
    found = describe(last, informative=[True])
    assert (found["tokens_drawn"], found["unfinished"]) == (3.0, 1.0)
    assert math.isclose(found["entropy"], 0.5)
