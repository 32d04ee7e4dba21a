"""Step tries: a call that failed is drawn again, and judged by whether it runs."""

import json

import pytest

from posttrain.data.schemas import Problem
from posttrain.learning.episodes.drawing import Role
from posttrain.learning.episodes.episode import Span
from posttrain.learning.episodes.play import play
from posttrain.learning.episodes.step_tries import StepTries, failed_calls, step_tries
from posttrain.learning.episodes.worlds.booking import Booking
from posttrain.learning.rl.drawn import of_step_tries
from posttrain.learning.rl.rollout import Rollout
from posttrain.learning.rl.selections.clean_calls import CleanCalls
from posttrain.learning.rollouts.engines.base import SamplingParams
from posttrain.learning.rollouts.scoring import make_prompts
from tests.learning.episodes.conftest import small_tokenizer
from tests.scripted import FakeEngine

WISH = {"day": "fri", "time": "7pm"}
PARAMS = SamplingParams(max_tokens=20, num_samples=3, seed=7)
AGAIN = ["day?", "hm", "book fri 7pm"]
"""What the policy says in place of the call that failed, by try."""


def booking(tape):
    facts = {"wish": WISH, "said": ["time"], "cost": 0.25, "noise": 0.0, "left": 5, "tape": tape}
    metadata = json.dumps({"booking": facts | {"user": "script"}})
    return Problem("booking", f"book day time: time 7pm ({tape})", str(tape), 1, "played", metadata)


@pytest.fixture(scope="module")
def tokenizer():
    return small_tokenizer()


def play_some(tokenizer, problems, again):
    """The second episode of each problem errs in its second turn; all else asks, then books."""

    def script(prompt, index, seed):  # noqa: ARG001 - what an engine is asked
        if "!" in prompt.id:
            return again[index]
        episode, _, turn = prompt.id.partition("@")
        second = episode.endswith("/1") if turn else index == 1
        said = ["time?", "so what", "day?", "book fri 7pm"] if second else ["day?", "book fri 7pm"]
        return said[int(turn or 0)]

    role = Role(FakeEngine(tokenizer, script), tokenizer, PARAMS)
    prompts = make_prompts(tokenizer, problems)
    return role, play(Booking(), problems, prompts, {"policy": role}, seed=7, most_turns=5)


def test_the_first_call_that_failed_is_drawn_again_and_only_its_end(tokenizer):
    problems = [booking(1), booking(2)]
    role, played = play_some(tokenizer, problems, ["hat?", "hat", "hat"])
    config = StepTries(redrawn=5)
    calls = failed_calls(played, problems, config, seed=7)
    assert [(call.place, call.turn) for call in calls] == [(0, 1), (1, 1)]
    (first, _) = step_tries(Booking(), role, calls, config)
    # Of "so what" and the end token five tokens went: "so " stays, and is no slot with "hat?".
    assert [each.text for each in first] == ["so hat?", "so hat", "so hat"]
    assert [each.failed for each in first] == [True] * 3
    rows = of_step_tries(first, group=4)
    kept = calls[0].kept
    assert tokenizer.decode(kept).endswith("time 7pm\nso ")
    for row in rows:
        assert row.token_ids[: len(kept)] == kept
        assert row.spans == (
            Span(0, len(kept), 0, drawn=False),
            Span(len(kept), len(row.token_ids), 0, drawn=True),
        )
        assert (row.role, row.group, row.turns[0][0]) == ("step", 4, 0.0)
    assert {row.peers for row in rows} == {calls[0].id}


def test_what_runs_is_paid_and_what_is_no_call_is_left_out(tokenizer):
    problems = [booking(1)]
    role, played = play_some(tokenizer, problems, AGAIN)
    config = StepTries(redrawn=99)
    calls = failed_calls(played, problems, config, seed=7)
    (tries,) = step_tries(Booking(), role, calls, config)
    # To book ends the episode: that is an answer.
    assert [(each.text, each.failed) for each in tries] == [("day?", False), ("hm", True)]
    assert [row.turns for row in of_step_tries(tries, group=0)] == [
        ((1.0, tries[0].key),),
        ((0.0, tries[0].key),),
    ]


def test_no_more_calls_are_drawn_again_than_is_said_and_alone_each_is_the_same(tokenizer):
    problems = [booking(tape) for tape in range(6)]
    role, played = play_some(tokenizer, problems, AGAIN)
    few = failed_calls(played, problems, StepTries(per_problem=0.5), seed=7)
    every = failed_calls(played, problems, StepTries(), seed=7)
    assert (len(few), len(every)) == (3, 6)
    assert [call.place for call in few] == sorted(call.place for call in few)
    together = step_tries(Booking(), role, every, StepTries())
    (alone,) = step_tries(Booking(), role, every[2:3], StepTries())
    assert alone == together[2]


def row(errors, role="policy"):
    facts = (("tool_errors", float(errors)),)
    return Rollout(
        "p", "s", 0, "p/0", (1, 2), (), (-1.0,), (0,), "over", "x", facts=facts, role=role
    )


def test_episodes_with_a_failed_call_are_left_out_and_groups_of_few_others():
    assert list(CleanCalls().keep([row(0), row(1), row(0), row(2)], None)) == [0, 2]
    assert list(CleanCalls().keep([row(0), row(1), row(3), row(2)], None)) == []
    # Half of three is two.
    assert list(CleanCalls().keep([row(0), row(1), row(3)], None)) == []
    assert list(CleanCalls().keep([row(1, "step"), row(0, "step")], None)) == [0, 1]
