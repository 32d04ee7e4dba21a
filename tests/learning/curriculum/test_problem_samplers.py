"""Problem samplers: expected solve rates, draws, shares of the sources, and what is refused."""

import polars as pl
import pytest
import torch

from posttrain.data.schemas import Problem, problems_table, with_row_ids
from posttrain.learning.curriculum.base import GroupResult, ProblemPool
from posttrain.learning.curriculum.registry import PROBLEM_SAMPLERS
from posttrain.learning.curriculum.solve_rate import SolveRate, SolveRateStream
from posttrain.learning.curriculum.start import SourceShares, start_sampler
from posttrain.learning.curriculum.uniform import Uniform
from posttrain.stage.errors import UserError


def stream_of(solved, attempts, strata, **settings):
    ids = [f"q{index}" for index in range(len(strata))]
    config = SolveRate(**settings)
    return SolveRateStream(ids, strata, solved=solved, attempts=attempts, config=config)


def result(problem, solved):
    rewards = tuple(float(bool(each)) for each in solved)
    sizes = (0.0,) * len(solved)
    return GroupResult(problem, rewards, tuple(solved), (3,) * len(solved), sizes)


@pytest.fixture(scope="module")
def problems():
    """40 problems, half of the source `up` and half of `down`."""
    made = [Problem(side, f"{side} {n} =", "1", 0, "exact") for n in range(20) for side in SIDES]
    return with_row_ids(problems_table(made), ("source", "prompt", "answer", "verifier"))


SIDES = ("up", "down")


def rates_of(problems, *, solved=1, attempts=2, policy="p"):
    return pl.DataFrame(
        {"problem_id": problems["id"], "solved": solved, "attempts": attempts, "policy": policy}
    )


def test_expected_rates_lean_on_the_stratum():
    """Stratum a: 6 + 2 of 16, so (8 + .5) / (16 + 1) = 1/2; b: 8 of 8, so 8.5 / 9."""
    found = stream_of([6, 2, 0, 8, 0], [8, 8, 0, 8, 0], "aaabb").rates()
    half, most = 0.5, 8.5 / 9
    expected = [(6 + 2 * half) / 10, (2 + 2 * half) / 10, half, (8 + 2 * most) / 10, most]
    assert found.tolist() == pytest.approx(expected)


def test_problems_are_drawn_in_proportion_to_their_signal():
    stream = stream_of([4, 8, 1], [8, 8, 8], "abc")
    weights = stream.weights() / stream.weights().sum()
    counts = torch.zeros(3)
    for step in range(3000):
        counts[stream.draw(1, seed=0, step=step)] += 1
    spread = (3000 * weights * (1 - weights)).sqrt()
    assert ((counts - 3000 * weights).abs() < 5 * spread).all()


def test_draws_are_different_problems_and_depend_on_seed_and_step_alone():
    stream = stream_of([4] * 20, [8] * 20, "a" * 20)
    drawn = stream.draw(10, seed=0, step=3)
    assert len(set(drawn)) == 10
    assert stream.draw(10, seed=0, step=3) == drawn
    assert stream.draw(10, seed=0, step=4) != drawn
    assert stream.draw(10, seed=1, step=3) != drawn


def test_old_attempts_fade_as_new_ones_come():
    stream = stream_of([4, 4], [8, 8], "ab")
    stream.observe([result(1, [True] * 6)])
    assert stream.solved_P.tolist() == pytest.approx([3.92, 9.92])
    assert stream.attempts_P.tolist() == pytest.approx([7.84, 13.84])
    copied = stream_of([0, 0], [0, 0], "ab")
    copied.load_state_dict(stream.state_dict())
    assert torch.equal(copied.rates(), stream.rates())


def test_what_could_not_be_judged_is_no_attempt():
    stream = stream_of([4, 4], [8, 8], "ab", memory=1.0)
    stream.observe([result(0, [True, None, False, None])])
    assert stream.solved_P.tolist() == [5, 4]
    assert stream.attempts_P.tolist() == [10, 8]


def test_the_constants_are_fields():
    """Prior 4 at the stratum's (6 + .5) / (8 + 1): p = (6 + 4 * 6.5 / 9) / 12; memory 1/2."""
    stream = stream_of([6], [8], "a", prior=4.0, memory=0.5, exponent=1.0)
    p = (6 + 4 * 6.5 / 9) / 12
    assert stream.rates().tolist() == pytest.approx([p])
    assert stream.weights().tolist() == pytest.approx([p * (1 - p)])
    stream.observe([])
    assert stream.attempts_P.tolist() == [4.0]


def test_metrics_are_those_that_the_part_declares():
    """Both problems at rate 1/2: (4 + .5) / 9 is 1/2 as well."""
    stream = stream_of([4, 4], [8, 8], "ab")
    assert stream.metrics() == pytest.approx({"solve_rate": 0.5, "signal": 1.0})
    assert stream.metrics().keys() == SolveRate.METRICS.keys()
    assert all(part.__doc__ for part in PROBLEM_SAMPLERS.parts.values())


def test_uniform_draws_need_no_solve_rates_and_know_no_preference(problems):
    stream = start_sampler(Uniform(), ProblemPool(problems), count=8)
    counts = torch.zeros(40)
    for step in range(500):
        drawn = stream.draw(8, seed=0, step=step)
        assert len(set(drawn)) == 8
        counts[drawn] += 1
    # Each problem is drawn in a fifth of the steps; 100 +- 5 standard deviations of 9.
    assert (counts - 100).abs().max() < 45
    assert stream.draw(8, seed=0, step=3) == stream.draw(8, seed=0, step=3)
    stream.observe([result(0, [True])])
    assert (stream.state_dict(), stream.metrics()) == ({}, {})


def test_a_sampler_that_begins_from_solve_rates_is_refused_without_any(problems):
    with pytest.raises(UserError, match="solve_rate begins from solve rates, and none are conn"):
        start_sampler(SolveRate(), ProblemPool(problems), count=8)


def test_fewer_problems_than_a_step_draws_are_refused(problems):
    with pytest.raises(UserError, match="there are 40 problems, but every step draws 41"):
        start_sampler(Uniform(), ProblemPool(problems), count=41)


@pytest.mark.parametrize(
    ("rates", "message"),
    [
        ({"policy": "q"}, "the solve rates are those of policy q, but this one is p"),
        ({"attempts": 0, "solved": 0}, "none of the 40 problems was probed"),
        ({"solved": 0}, "all 80 probed attempts failed.*take easier problems"),
        ({"solved": 2}, "all 80 probed attempts succeeded.*take harder problems"),
    ],
)
def test_solve_rates_that_say_nothing_are_refused(problems, rates, message):
    pool = ProblemPool(problems, rates_of(problems, **rates), policy="p")
    with pytest.raises(UserError, match=message):
        start_sampler(SolveRate(), pool, count=8)


def test_where_all_attempts_failed_the_sentence_says_where_an_answer_counts(problems):
    pool = ProblemPool(
        problems, rates_of(problems, solved=0), policy="p", places=lambda: "in a box"
    )
    with pytest.raises(UserError, match="an answer counts that stands in a box: if probe/format"):
        start_sampler(SolveRate(), pool, count=8)


SOURCES = ["sums"] * 8 + ["sorts"] * 8 + ["other"] * 4


def shared(**shares):
    return SourceShares(stream_of([4] * 20, [8] * 20, SOURCES), shares, SOURCES)


def test_sources_take_turns_by_their_shares():
    """Shares 5 : 3 in draws of 4: 2.5 and 1.5 a step, so 25 and 15 after ten, never off by one."""
    stream = shared(sums=5.0, sorts=3.0)
    counts = {"sums": 0, "sorts": 0, "other": 0}
    for step in range(10):
        drawn = stream.draw(4, seed=0, step=step)
        assert len(set(drawn)) == 4
        for index in drawn:
            counts[SOURCES[index]] += 1
        assert abs(counts["sums"] - 2.5 * (step + 1)) < 1
    assert counts == {"sums": 25, "sorts": 15, "other": 0}


def test_within_a_source_the_order_is_that_of_the_race():
    stream, plain = shared(sums=1.0), stream_of([4] * 20, [8] * 20, SOURCES)
    order = [index for index in plain.draw(20, seed=0, step=1) if SOURCES[index] == "sums"]
    assert stream.draw(5, seed=0, step=1) == order[:5]


def test_a_later_round_goes_on_where_the_earlier_ones_ended():
    plain = stream_of([4] * 20, [8] * 20, SOURCES)
    for stream, again in ((shared(sums=1, sorts=1), shared(sums=1, sorts=1)), (plain, plain)):
        first = stream.draw(4, seed=0, step=2)
        second = stream.draw(4, seed=0, step=2, without=first)
        assert first + second == again.draw(8, seed=0, step=2)
    assert len(plain.draw(30, seed=0, step=2, without=first)) == 16


def test_a_source_that_is_out_is_passed():
    drawn = shared(other=1.0, sums=1.0).draw(12, seed=0, step=0)
    assert sorted(SOURCES[index] for index in drawn) == ["other"] * 4 + ["sums"] * 8


def test_what_is_owed_survives_a_checkpoint():
    one, two = shared(sums=5.0, sorts=3.0), shared(sums=5.0, sorts=3.0)
    one.draw(3, seed=0, step=0)
    two.load_state_dict(one.state_dict())
    assert two.owed == one.owed
    assert two.draw(5, seed=0, step=1) == one.draw(5, seed=0, step=1)


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        ({"upp": 1.0}, "rl.draw.sources: no problem has the source 'upp'; did you mean 'up'"),
        ({"up": 9.0, "down": 1.0}, "share of 'up' is 27 problems per step, but there are 20"),
    ],
)
def test_shares_that_cannot_be_given_are_refused(problems, sources, message):
    pool = ProblemPool(problems, rates_of(problems), policy="p")
    with pytest.raises(UserError, match=message):
        start_sampler(SolveRate(), pool, count=30, sources=sources)
