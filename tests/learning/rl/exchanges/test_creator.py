"""Which problems are rewritten."""

from collections import Counter
from random import Random

import pytest

from posttrain.learning.rewards.config import RewardStack
from posttrain.learning.rl.exchanges.creator import Creator
from posttrain.learning.rl.exchanges.evolved import without_label
from posttrain.stage.errors import UserError


def test_problems_are_drawn_in_proportion_to_what_they_tell():
    creator, chance = Creator(evolved=1), Random(0)
    counts = Counter(place for _ in range(4000) for place in creator.drawn([0.0, 1.0, 3.0], chance))
    # One in four and three in four: 1000 and 3000, whose deviation is sqrt(4000 * 3/16) = 27.
    assert counts[0] == 0
    assert counts[1] == pytest.approx(1000, abs=110)
    assert counts[1] + counts[2] == 4000


def test_no_problem_is_drawn_twice_and_none_that_tells_nothing():
    assert Creator(evolved=3).drawn([0.2, 0.0, 0.9], Random(0)) == [0, 2]


def test_where_no_problem_tells_anything_all_are_equally_likely():
    creator, chance = Creator(evolved=1), Random(0)
    counts = Counter(place for _ in range(3000) for place in creator.drawn([0.0] * 3, chance))
    assert all(counts[place] == pytest.approx(1000, abs=110) for place in range(3))


def test_what_a_label_says_of_a_new_problem_is_unknown():
    reward = RewardStack.parse(
        {
            "components": {
                "correct": "verifier",
                "agreed": "majority",
                "short": {"kind": "target_length", "target": 9, "when": "correct"},
            },
            "bonus_may_outweigh": True,
        },
        where="reward",
    )
    scores = (("correct", 1.0), ("agreed", 1.0), ("short", 0.5))
    found = without_label(scores, reward)
    assert found == (("correct", None), ("agreed", 1.0), ("short", None))


def test_by_chance_what_was_earned_counts_for_nothing():
    creator, chance = Creator(evolved=1, by="chance"), Random(0)
    counts = Counter(place for _ in range(3000) for place in creator.drawn([0.0, 0.0, 9.0], chance))
    assert all(counts[place] == pytest.approx(1000, abs=110) for place in range(3))


def test_a_creator_that_would_not_read_the_problem_is_refused():
    with pytest.raises(UserError, match="asks has 'Pose one.', without {prompt}"):
        Creator.parse({"asks": ["Pose one."]}, where="exchange")
