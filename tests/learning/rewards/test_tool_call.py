import json

import pytest

from posttrain.data.schemas import Problem
from posttrain.learning.rewards.verifiers.tool_call import ToolCallVerifier
from posttrain.stage.errors import UserError

WEATHER = {"name": "weather", "parameters": {"city": "Rome", "days": 3}}
MAIL = {"name": "mail", "parameters": {}}


def score(*calls, wanted=(WEATHER,), text=None):
    written = "\n".join(json.dumps(each) for each in calls) if text is None else text
    right = "\n".join(json.dumps(each) for each in wanted)
    problem = Problem("tools", "Weather in Rome?", right, 1, "tool_call")
    return ToolCallVerifier().score(f"so\n<tool_call>{written}</tool_call>", problem)


def call(name="weather", **arguments):
    return {"name": name, "arguments": arguments}


@pytest.mark.parametrize(
    ("calls", "value", "reason"),
    [
        ([call(days=3, city="Rome")], 1.0, "correct"),
        # At most 1 for names, 1 for keys, and 2 values: 4. Without one value, 3 are left.
        ([call(city="Oslo", days=3)], 3 / 4, "wrong_values"),
        ([call(city="Rome", days=True)], 3 / 4, "wrong_values"),
        # Keys {city} of {city, days}: 1/2; one value: 2.5 of 4.
        ([call(city="Rome")], 2.5 / 4, "wrong_keys"),
        # Keys {city, days} of {city, days, unit}: 2/3; both values.
        ([call(city="Rome", days=3, unit="C")], (1 + 2 / 3 + 2) / 4, "wrong_keys"),
        ([call("climate", city="Rome", days=3)], 0.0, "wrong_name"),
        # One call too many: half of the names; the right call is matched in full.
        ([call(city="Rome", days=3), call("mail")], 3.5 / 4, "wrong_name"),
        # Of two of one name the better one is matched.
        ([call(city="Oslo"), call(city="Rome", days=3)], 3.5 / 4, "wrong_name"),
    ],
)
def test_parts_by_hand(calls, value, reason):
    assert score(*calls).value == pytest.approx(value)
    assert score(*calls).reason == reason


def test_several_calls_in_any_order():
    # 1 for names, and for each call 1 for its keys: 3, and two values: 5 at most.
    both = (WEATHER, MAIL)
    assert score(call("mail"), call(city="Rome", days=3), wanted=both).reason == "correct"
    assert score(call(city="Rome", days=3), wanted=both).value == pytest.approx(3.5 / 5)
    assert score(text=json.dumps([MAIL, WEATHER]), wanted=both).reason == "correct"


@pytest.mark.parametrize(
    "text", ["weather(Rome)", "{}", '{"name": 3}', "[1]", '{"name": "a", "arguments": 2}']
)
def test_what_is_no_call_says_so(text):
    assert score(text=text).reason == "no_call"


def test_without_the_tag_there_is_no_answer():
    problem = Problem("tools", "q", json.dumps(WEATHER), 1, "tool_call")
    assert ToolCallVerifier().score(json.dumps(WEATHER), problem).reason == "no_answer"
    assert ToolCallVerifier(answer="whole").score(json.dumps(WEATHER), problem).correct


def test_a_reference_that_is_no_call_is_refused():
    with pytest.raises(UserError, match="checked by the verifier 'tool_call', but its answer is"):
        score(call("a"), wanted=(3,))
