"""Prompts whose parts stand in another order."""

from random import Random

import pytest

from posttrain.learning.rl.producers.two_orders import shuffled

BETWEEN = ("\n", " ")


def test_lines_change_places_and_the_question_does_not():
    prompt = "ball in box\nann goes\nball in bag\nann looks in"
    seen = {shuffled(prompt, BETWEEN, Random(seed)) for seed in range(60)}
    # Three events have six orders, of which one is their own.
    assert len(seen) == 5
    assert prompt not in seen
    for text in seen:
        *events, question = text.split("\n")
        assert sorted(events) == ["ann goes", "ball in bag", "ball in box"]
        assert question == "ann looks in"


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("4 + 3", "+ 4 3"),
        # One line break parts two: it goes by words.
        ("a b\nc d", "b\nc a d"),
        ("a\na\nb", ""),
        ("a b", ""),
    ],
)
def test_words_where_there_are_no_lines_and_nothing_where_there_is_no_other_order(prompt, expected):
    assert shuffled(prompt, BETWEEN, Random(0)) == expected
