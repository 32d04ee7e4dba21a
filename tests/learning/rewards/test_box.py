import pytest

from posttrain.data.schemas import Problem
from posttrain.learning.rewards.verifiers.box import BoxVerifier
from posttrain.learning.rewards.verifiers.point import PointVerifier
from posttrain.stage.errors import UserError

TARGET = "[10, 10, 30, 20]"


def score(verifier, answer, right=TARGET):
    return verifier.score(answer, Problem("screen", "Where is it?", right, 1, verifier.kind))


@pytest.mark.parametrize(
    ("answer", "value", "reason"),
    [
        ("(10, 10), (30, 20)", 1.0, "correct"),
        # 100 of 200 shared, 300 in all.
        ("[20, 10, 40, 20]", 1 / 3, "wrong_answer"),
        ("[10, 10, 20, 20]", 1 / 2, "wrong_answer"),
        ("[40, 10, 50, 20]", 0.0, "wrong_answer"),
        # They touch in a line, which has no area.
        ("[30, 10, 50, 20]", 0.0, "wrong_answer"),
        ("[30, 20, 10, 10]", 0.0, "not_a_box"),
        ("[10, 10, 30]", 0.0, "not_a_box"),
        ("[1e9999, 0, 1, 1]", 0.0, "not_a_box"),
        ("1.2.3 4 5 6 7", 0.0, "not_a_box"),
        ("1.2.3 10 10 30 20", 0.0, "not_a_box"),
        ("12345678901, 10, 10, 30, 20", 0.0, "not_a_box"),
        ("From 10, 10 to 30, 20.", 1.0, "correct"),
        ('{"bbox_2d": [10, 10, 30, 20]}', 1.0, "correct"),
        ("x1=10 y1=10 x2=30 y2=20", 1.0, "correct"),
        ("[10.0000000000001, 10, 30.0000000000001, 20]", 1.0, "wrong_answer"),
        # It is 30.5 wide and 10 high, and has all of the other one in it.
        ("[-.5, 10, 30, 20]", 200 / 305, "wrong_answer"),
    ],
)
def test_overlap_by_hand(answer, value, reason):
    found = score(BoxVerifier(answer="whole"), answer)
    assert (found.value, found.reason) == (pytest.approx(value), reason)


def test_half_an_overlap_may_be_accepted():
    assert score(BoxVerifier(answer="whole", accept=0.5), "[10, 10, 20, 20]").correct
    assert not score(BoxVerifier(answer="whole", accept=0.5), "[20, 10, 40, 20]").correct


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("(20, 15)", "correct"),
        ("(10, 20)", "correct"),
        ("(9.9, 15)", "wrong_answer"),
        # The center of a box: (20, 15).
        ("[0, 0, 40, 30]", "correct"),
        ("[0, 0, 10, 10]", "wrong_answer"),
        ("20", "not_a_point"),
        ("1 2 3", "not_a_point"),
    ],
)
def test_a_point_lies_in_the_box(answer, reason):
    assert score(PointVerifier(answer="whole"), answer).reason == reason


@pytest.mark.parametrize("verifier", [BoxVerifier(answer="whole"), PointVerifier(answer="whole")])
def test_a_reference_that_is_no_box_is_refused(verifier):
    with pytest.raises(UserError, match=f"verifier '{verifier.kind}', but its answer is 'there'"):
        score(verifier, "[1, 2, 3, 4]", right="there")
