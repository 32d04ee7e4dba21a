"""What a scorer's text pays, and templates that could not be read."""

import pytest

from posttrain.learning.rl.exchanges.discussion import Discussion
from posttrain.learning.rl.exchanges.floor import Floor
from posttrain.stage.errors import UserError


@pytest.mark.parametrize(
    ("text", "pay"),
    [
        ("fine. <score>3</score>", 1.0),
        ("<score> 2 </score>", 0.5),
        ("<score>3</score>, no: <score>1</score>", 0.0),
        ("<score>4</score>", None),
        ("<score>0</score>", None),
        ("3", None),
        ("", None),
    ],
)
def test_a_score_of_1_to_3_is_paid_0_to_1(text, pay):
    assert Discussion().paid(text) == pay


def test_what_a_discussion_measures_by_hand():
    # Four of five solutions were scored, and of one of these nobody knows whether it is right.
    scored = [(1.0, True), (0.5, True), (0.25, False), (0.75, None), (None, True)]
    floor = Floor([], None, None, scored=scored, num_asked=8, num_unread=2)
    found = {"score": 0.625, "score_right": 0.75, "score_wrong": 0.25, "unread": 0.25}
    assert floor.measured() == pytest.approx(found | {"unscored": 0.2})
    assert floor.measured().keys() == Discussion.METRICS.keys()


def test_scores_may_be_stated_otherwise():
    # Of 0 to 10, 4 is four tenths.
    assert Discussion(pattern=r"#### (\d+)", lowest=0, highest=10).paid("x\n#### 4") == 0.4


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"evaluate": "{prompt}"}, "evaluate has no {solution}"),
        ({"score": "{prompt}{solution}"}, "score has no {evaluation}"),
        ({"pattern": "("}, "pattern is none"),
        ({"pattern": "score"}, "pattern needs one group"),
        ({"lowest": 3}, "lowest is to be below highest"),
        ({"unreadable": 0.5}, "unreadable"),
    ],
)
def test_what_could_not_be_read_is_refused(settings, told):
    with pytest.raises(UserError, match=told):
        Discussion.parse(settings, where="exchange")
