"""A booking: what was left out has to be asked for, and nothing else."""

from random import Random

import pytest

from posttrain.learning.episodes.environments.base import Act, Ask, Told
from posttrain.learning.episodes.worlds.booking import Booking

WISH = {"day": "fri", "time": "7pm", "for": "2"}


def begun(*said, **changes):
    facts = {"wish": WISH, "said": [*said], "cost": 0.25, "noise": 0.0, "left": 7, "tape": 5}
    return Booking().begin({**facts, "user": "script", **changes}, 0)


def after(situation, *turns):
    for turn in turns:
        ((role, _),) = situation.asks
        situation = Booking().step(situation.state, (Act(role, turn),), 0)
    return situation


def test_what_is_missing_is_asked_for_and_then_booked():
    asked = after(begun("time", "for"), "day?")
    assert asked.asks == (Ask("policy", (Told("user", "day fri"),)),)
    over = after(asked, "book fri 7pm 2")
    assert (over.asks, dict(over.earned)) == ((), {"policy": 1.0})


@pytest.mark.parametrize(
    ("turns", "earned"),
    [
        # A guess, however lucky; a wrong value; the wrong order.
        (["book fri 7pm 2"], 0.0),
        (["day?", "book sat 7pm 2"], 0.0),
        (["day?", "book 7pm fri 2"], 0.0),
        # Each question whose answer was known costs a quarter, one about the same thing again too.
        (["time?", "day?", "book fri 7pm 2"], 0.75),
        (["day?", "day?", "time?", "for?", "time?", "book fri 7pm 2"], 0.0),
        (["day", "please?", "day?", "book fri 7pm 2"], 1.0),
    ],
)
def test_what_a_booking_earns(turns, earned):
    assert after(begun("time", "for"), *turns).earned.get("policy", 0.0) == earned


def test_what_is_no_turn_is_counted_and_the_last_question_is_not_answered():
    assert after(begun("time"), "hello").facts == {"tool_errors": 1.0}
    assert after(begun("time"), "time?").facts == {"needless": 1.0}
    assert after(begun("time", left=1), "day?").asks == ()


def test_a_user_answers_off_the_point_as_often_as_is_said_and_what_is_said_counts():
    told = [after(begun(noise=0.3, tape=tape), "day?") for tape in range(1000)]
    off = [each for each in told if each.asks[0].new[0].text != "day fri"]
    assert len(off) / 1000 == pytest.approx(0.3, abs=0.045)
    assert {each.asks[0].new[0].text for each in off} == {"time 7pm", "for 2"}
    # Asking again costs nothing, and what was said beside the point need not be asked for.
    astray = next(each for each in off if each.state["said"] == ["time"])
    turns, situation = 0, astray
    while situation.state["said"][-1] != "day" and turns < 4:
        situation, turns = after(situation, "day?"), turns + 1
    assert situation.state["needless"] == 0
    assert after(situation, "time?").state["needless"] == 1


def test_a_user_may_be_a_role_that_reads_what_it_wants_once():
    asked = after(begun("time", user="role"), "day?")
    assert asked.asks == (Ask("user", (Told("user", "You want day fri time 7pm for 2. day?"),)),)
    told = after(asked, "Well, day fri, for 3.\nBye")
    assert told.asks == (Ask("policy", (Told("user", "Well, day fri, for 3. Bye"),)),)
    # What the user says wrongly was not said.
    assert told.state["said"] == ["time", "day"]
    assert after(told, "for?").asks == (Ask("user", (Told("user", "for?"),)),)
    # A role that nobody plays is played by the script of the user.
    assert Booking().best_move(asked.state, "user", Random(0)) == "day fri"
    assert after(asked, "").asks[0].new[0].text == "well"
