"""Stored successes that a policy learns from again: which of them, and which of their turns."""

import math
from random import Random

from posttrain.learning.episodes.episode import Span
from posttrain.learning.rl.batch import TrainSample
from posttrain.learning.rl.familiar import Recalled, familiar, familiar_tokens, only
from posttrain.learning.rl.rollout import Rollout

BOUNDS = (0.5, 0.95)


def episode(name, reward=1.0):
    """Two tokens drawn, one read, one drawn."""
    return Rollout(
        problem_id=name,
        source="s",
        group=0,
        episode=name,
        token_ids=(7, 1, 2, 8, 3),
        spans=(
            Span(0, 1, 0, False),
            Span(1, 3, 0, True),
            Span(3, 4, 1, False),
            Span(4, 5, 1, True),
        ),
        logprobs=(-0.1, -0.2, -0.3),
        versions=(0, 0),
        end="over",
        text="ab c",
        reward=reward,
    )


def test_a_turn_is_familiar_by_the_geometric_mean_of_its_tokens():
    # sqrt(.9 x .4) = .6 lies between, though .4 alone does not; .96 does not.
    logprobs = [math.log(0.9), math.log(0.4), math.log(0.96)]
    assert familiar_tokens(episode("a"), logprobs, bounds=BOUNDS) == (True, True, False)
    # Both bounds are within them.
    edges, almost = [math.log(0.5)] * 2 + [math.log(0.95)], (0.5 - 1e-12, 0.95 + 1e-12)
    assert all(familiar_tokens(episode("a"), edges, bounds=almost))


def test_successes_are_drawn_once_each_and_the_policy_asked_for_no_more_than_are_needed():
    asked = []

    def logprobs_of(rows):
        asked.extend(row.problem_id for row in rows)
        # Of every third one no turn is within the bounds.
        sure = {row.problem_id: int(row.problem_id) % 3 == 0 for row in rows}
        return [[-0.01 if sure[row.problem_id] else -0.3] * 3 for row in rows]

    stored = [[episode(str(place), reward=float(place % 2))] for place in range(40)]
    given = {"bounds": BOUNDS, "draw": Random(0), "logprobs_of": logprobs_of}
    found = familiar(stored, most=4, **given)
    names = [each.rows[0].problem_id for each in found]
    assert len(set(names)) == 4
    assert all(int(name) % 2 and int(name) % 3 for name in names)
    assert [each.num_turns for each in found] == [2] * 4
    assert len(asked) == len(set(asked)) <= 12
    # As many as there are, where there are fewer: 20 successes, of which 7 are too sure.
    assert len(familiar(stored, most=64, **given)) == 20 - len(range(3, 40, 6))


def test_an_episode_that_is_taken_whole_counts_every_turn():
    assert Recalled.whole([episode("a"), episode("b")]).num_turns == 4


def test_what_is_not_taught_is_as_if_it_had_been_read():
    sample = TrainSample.bare(episode("a"))
    changed = only(
        TrainSample(**vars(sample) | {"advantages": (1.0, 1.0, 2.0), "weights": (0.5,)}),
        (False, False, True),
    )
    assert changed.drawn == (False, False, False, False, True)
    assert changed.token_ids == sample.token_ids
    assert (changed.logprobs, changed.advantages, changed.weights) == ((-0.3,), (2.0,), (0.5,))
    assert changed.old_logprobs == ()
    assert only(sample, (True, True, True)) is sample
