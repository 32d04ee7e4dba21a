"""The figures of episodes, by hand."""

import pytest

from posttrain.data.schemas import Problem
from posttrain.learning.episodes.figures import figures_of
from posttrain.learning.rewards.score import Score
from posttrain.learning.rollouts.engines.base import FinishReason, PlayedSample, Sample
from posttrain.learning.rollouts.scoring import ScoredSample


def made(number, value, played=None, *, reason=FinishReason.STOP, drawn=3):
    problem = Problem("w", f"p{number}", "", 1, "played")
    sample = Sample(problem.id, 0, (7,) * drawn, (0.0,) * drawn, "x", reason, 0, played)
    return ScoredSample(problem, sample, Score(value, value == 1.0 if value is not None else None))


def episode(*earned, end="over", read=0, **facts):
    return PlayedSample((("assistant", "x"),), earned, facts, end=end, tokens_read=read)


def test_means_are_over_all_episodes_and_scores_over_those_that_were_judged():
    told = figures_of([
        made(1, 1.0, episode(0.5, 0.5, read=6, tool_errors=2.0)),
        made(1, 0.5, episode(0.5, 0.0, 0.0, end="turns", read=10)),
        made(2, None, episode(0.0, end="failed", read=2), drawn=6),
        made(3, 0.0, reason=FinishReason.LENGTH),
    ])  # fmt: skip
    assert told.score.value == pytest.approx(0.5)
    assert told.turns.value == pytest.approx((2 + 3 + 1 + 1) / 4)
    assert told.tokens_read.value == pytest.approx(18 / 4)
    assert told.tokens_drawn.value == pytest.approx(15 / 4)
    assert told.facts["tool_errors"].value == pytest.approx(0.5)
    assert {end: share.value for end, share in told.ends.items()} == dict.fromkeys(
        ["failed", "over", "tokens", "turns"], 0.25
    )
    assert dict(told.named())["ended_failed"] == 0.25
    # Of 3 clusters: residuals of turns 1.5, -0.75, -0.75, so 3/2 * 3.375 / 16 is the variance.
    reach = 1.959964 * (1.5 * 3.375 / 16) ** 0.5
    assert told.turns.high - told.turns.value == pytest.approx(reach, rel=1e-5)


def test_a_share_that_is_the_same_everywhere_has_a_width():
    told = figures_of([made(number, 1.0, episode(1.0)) for number in range(10)])
    assert told.ends["over"].high == 1.0
    # Wilson's lower end of 10 of 10: n / (n + z^2).
    assert told.ends["over"].low == pytest.approx(10 / (10 + 1.959964**2), rel=1e-5)
    assert told.score == told.ends["over"]


def test_where_nothing_was_judged_there_is_no_score():
    told = figures_of([made(1, None, episode(end="failed"))])
    assert told.score is None
    assert "score" not in dict(told.named())
